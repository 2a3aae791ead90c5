//! Element types: Triton's and libtorch's names.

use tch::Kind;
use triton_backend_api::DataType;

/// libtorch's name of a type; `None` for the types it has no tensors of.
pub fn kind_of(data_type: DataType) -> Option<Kind> {
    Some(match data_type {
        DataType::Bool => Kind::Bool,
        DataType::Uint8 => Kind::Uint8,
        DataType::Int8 => Kind::Int8,
        DataType::Int16 => Kind::Int16,
        DataType::Int32 => Kind::Int,
        DataType::Int64 => Kind::Int64,
        DataType::Fp16 => Kind::Half,
        DataType::Bf16 => Kind::BFloat16,
        DataType::Fp32 => Kind::Float,
        DataType::Fp64 => Kind::Double,
        _ => return None,
    })
}

/// Triton's name of a type, or libtorch's where Triton has none.
pub fn triton_name(kind: Kind) -> String {
    use DataType::*;
    let types = [Bool, Uint8, Int8, Int16, Int32, Int64, Fp16, Bf16, Fp32, Fp64];
    let known = types.into_iter().find(|data_type| kind_of(*data_type) == Some(kind));
    known.map_or_else(|| format!("{kind:?}"), |data_type| data_type.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_the_size_triton_gives_it() {
        use DataType::*;
        for data_type in [Bool, Uint8, Int8, Int16, Int32, Int64, Fp16, Bf16, Fp32, Fp64] {
            assert_eq!(kind_of(data_type).map(Kind::elt_size_in_bytes), data_type.byte_size());
        }
        for data_type in [Bytes, Uint16, Uint32, Uint64] {
            assert_eq!(kind_of(data_type), None);
        }
    }
}
