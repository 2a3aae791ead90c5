//! Element types of tensors.

use std::fmt;

use crate::error::{Error, Result};
use crate::sys;

/// Triton's element types, `TRITONSERVER_DataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)] // the names are Triton's
pub enum DataType {
    Bool,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    Fp16,
    Fp32,
    Fp64,
    Bytes,
    Bf16,
    /// A value this crate does not know.
    Unknown(u32),
}

/// Every known type, its value in the ABI, its name in metadata and requests, its size in bytes (0: variable).
const TABLE: [(DataType, u32, &str, usize); 14] = [
    (DataType::Bool, sys::TRITONSERVER_TYPE_BOOL, "BOOL", 1),
    (DataType::Uint8, sys::TRITONSERVER_TYPE_UINT8, "UINT8", 1),
    (DataType::Uint16, sys::TRITONSERVER_TYPE_UINT16, "UINT16", 2),
    (DataType::Uint32, sys::TRITONSERVER_TYPE_UINT32, "UINT32", 4),
    (DataType::Uint64, sys::TRITONSERVER_TYPE_UINT64, "UINT64", 8),
    (DataType::Int8, sys::TRITONSERVER_TYPE_INT8, "INT8", 1),
    (DataType::Int16, sys::TRITONSERVER_TYPE_INT16, "INT16", 2),
    (DataType::Int32, sys::TRITONSERVER_TYPE_INT32, "INT32", 4),
    (DataType::Int64, sys::TRITONSERVER_TYPE_INT64, "INT64", 8),
    (DataType::Fp16, sys::TRITONSERVER_TYPE_FP16, "FP16", 2),
    (DataType::Fp32, sys::TRITONSERVER_TYPE_FP32, "FP32", 4),
    (DataType::Fp64, sys::TRITONSERVER_TYPE_FP64, "FP64", 8),
    (DataType::Bytes, sys::TRITONSERVER_TYPE_BYTES, "BYTES", 0),
    (DataType::Bf16, sys::TRITONSERVER_TYPE_BF16, "BF16", 2),
];

impl DataType {
    pub(crate) fn from_raw(raw: u32) -> Self {
        TABLE.iter().find(|row| row.1 == raw).map_or(Self::Unknown(raw), |row| row.0)
    }

    /// Its value in the ABI, `TRITONSERVER_DataType`.
    pub fn to_raw(self) -> u32 {
        match self {
            Self::Unknown(raw) => raw,
            known => {
                TABLE.iter().find(|row| row.0 == known).map_or(sys::TRITONSERVER_TYPE_INVALID, |row| row.1)
            }
        }
    }

    /// The type a model configuration names: `TYPE_FP32`, or `TYPE_STRING` for [`DataType::Bytes`].
    pub fn from_config(name: &str) -> Result<Self> {
        let short = match name.strip_prefix("TYPE_") {
            Some("STRING") => "BYTES",
            Some(short) => short,
            None => "",
        };
        TABLE.iter().find(|row| row.2 == short).map(|row| row.0).ok_or_else(|| {
            Error::invalid_arg(format!("data type '{name}' is not one this backend API knows"))
        })
    }

    /// The name in a model configuration.
    pub fn config_name(self) -> String {
        match self {
            Self::Bytes => "TYPE_STRING".to_owned(),
            other => format!("TYPE_{other}"),
        }
    }

    /// Bytes per element; `None` where elements have no fixed size.
    pub fn byte_size(self) -> Option<usize> {
        TABLE.iter().find(|row| row.0 == self).map(|row| row.3).filter(|size| *size > 0)
    }

    /// Bytes of a tensor of this type and shape: an error for a variable size, a negative dimension, or a
    /// product beyond 64 bits.
    pub fn tensor_byte_size(self, shape: &[i64]) -> Result<usize> {
        let size = self.byte_size().ok_or_else(|| {
            Error::invalid_arg(format!("data type {self} has no fixed element size, so none for {shape:?}"))
        })?;
        self.product(size, shape)
    }

    /// Elements of a tensor of this shape: an error for a negative dimension, or a product beyond an address space.
    pub(crate) fn element_count(self, shape: &[i64]) -> Result<usize> {
        self.product(1, shape)
    }

    fn product(self, size: usize, shape: &[i64]) -> Result<usize> {
        shape
            .iter()
            .try_fold(size, |product, dim| product.checked_mul(usize::try_from(*dim).ok()?))
            .filter(|bytes| isize::try_from(*bytes).is_ok())
            .ok_or_else(|| Error::invalid_arg(format!("shape {shape:?} of {self} is negative or too large")))
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(raw) => write!(f, "UNKNOWN({raw})"),
            known => f.write_str(TABLE.iter().find(|row| row.0 == *known).map_or("INVALID", |row| row.2)),
        }
    }
}

/// Rust types that can be seen in a tensor's bytes: plain numbers for which every bit pattern is a value.
///
/// The numbers of Rust and [`Bool`] are; with the feature `half` also `half::f16` and `half::bf16`.
///
/// # Safety
/// Implementors have no padding, no invalid bit pattern, and the size of [`Element::DATA_TYPE`].
pub unsafe trait Element: Copy + Default + 'static {
    /// Triton's name of the type.
    const DATA_TYPE: DataType;
}

macro_rules! elements {
    ($($rust:ty => $triton:ident,)*) => { $(
        // SAFETY: a primitive number: no padding, every bit pattern valid, the size Triton gives the type.
        unsafe impl Element for $rust { const DATA_TYPE: DataType = DataType::$triton; }
    )* };
}

elements! {
    u8 => Uint8, u16 => Uint16, u32 => Uint32, u64 => Uint64,
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    f32 => Fp32, f64 => Fp64,
}

#[cfg(feature = "half")]
elements! {
    half::f16 => Fp16, half::bf16 => Bf16,
}

/// An element of a BOOL tensor: one byte, 0 is false and anything else is true.
#[derive(Clone, Copy, Debug, Default)]
#[repr(transparent)]
pub struct Bool(u8);

// SAFETY: a byte, for which every bit pattern is a value; a BOOL takes one byte.
unsafe impl Element for Bool {
    const DATA_TYPE: DataType = DataType::Bool;
}

impl Bool {
    /// The truth value.
    pub fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool {
    fn from(value: bool) -> Self {
        Self(value.into())
    }
}

impl PartialEq for Bool {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Bool {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_survives_its_three_names() {
        for (data_type, raw, _, size) in TABLE {
            assert_eq!(DataType::from_raw(raw), data_type);
            assert_eq!(data_type.to_raw(), raw);
            assert_eq!(DataType::from_config(&data_type.config_name()), Ok(data_type));
            assert_eq!(data_type.byte_size().unwrap_or(0), size);
        }
    }

    #[test]
    fn an_unknown_value_is_kept() {
        let unknown = DataType::from_raw(99);
        assert_eq!(unknown, DataType::Unknown(99));
        assert_eq!(unknown.to_raw(), 99);
        assert!(unknown.tensor_byte_size(&[1]).is_err());
        assert!(DataType::from_config("FP32").is_err(), "configuration names carry the prefix TYPE_");
    }

    #[test]
    fn truth_values_are_equal_whatever_the_byte() {
        assert_eq!((Bool(2), Bool(0)), (Bool::from(true), Bool::from(false)));
        assert_ne!(Bool(2), Bool(0));
    }

    #[test]
    fn tensor_sizes_are_checked() {
        assert_eq!(DataType::Fp32.tensor_byte_size(&[1, 512, 512, 114]), Ok(512 * 512 * 114 * 4));
        assert_eq!(DataType::Fp32.tensor_byte_size(&[]), Ok(4));
        assert_eq!(DataType::Fp32.tensor_byte_size(&[3, 0]), Ok(0));
        assert!(DataType::Fp32.tensor_byte_size(&[-1, 2]).is_err());
        assert!(DataType::Fp32.tensor_byte_size(&[i64::MAX, 2]).is_err());
        assert!(DataType::Bytes.tensor_byte_size(&[1]).is_err());
    }
}
