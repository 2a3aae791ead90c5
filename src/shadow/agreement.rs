//! How two masks of one volume agree.

use half::f16;
use triton_backend_api::{DataType, Error, Result};

/// Voxels above 0 of either and both, and those in which the labels differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    ours: u64,
    theirs: u64,
    both: u64,
    /// In how many voxels the labels differ.
    pub mismatched: u64,
}

impl Agreement {
    /// Of our labels and those of another model, which are of this type and as many.
    pub fn of(ours: &[u8], theirs: &[u8], data_type: DataType) -> Result<Self> {
        let found = match data_type {
            DataType::Fp32 => count(ours, theirs, f32::from_ne_bytes),
            DataType::Fp16 => count(ours, theirs, |bytes| f16::from_ne_bytes(bytes).to_f32()),
            DataType::Uint8 | DataType::Bool => count(ours, theirs, |[byte]| byte),
            DataType::Int8 => count(ours, theirs, |[byte]| i16::from(byte as i8)),
            DataType::Int32 => count(ours, theirs, i32::from_ne_bytes),
            DataType::Int64 => count(ours, theirs, i64::from_ne_bytes),
            other => {
                return Err(Error::unsupported(format!(
                    "its mask has data type {other}; accepted are FP32, FP16, UINT8, INT8, INT32, INT64 and BOOL"
                )));
            }
        };
        Ok(found)
    }

    /// Dice's coefficient of the voxels above 0; that of two empty masks is 1.
    pub fn dice(&self) -> f64 {
        match self.ours + self.theirs {
            0 => 1.0,
            sum => 2.0 * self.both as f64 / sum as f64,
        }
    }
}

fn count<T, const SIZE: usize>(ours: &[u8], theirs: &[u8], label: impl Fn([u8; SIZE]) -> T) -> Agreement
where
    T: From<u8> + PartialEq + PartialOrd,
{
    let mut found = Agreement::default();
    for (ours, theirs) in ours.iter().zip(theirs.as_chunks().0) {
        let theirs = label(*theirs);
        let (is_ours, is_theirs) = (*ours > 0, theirs > T::from(0));
        found.ours += u64::from(is_ours);
        found.theirs += u64::from(is_theirs);
        found.both += u64::from(is_ours && is_theirs);
        found.mismatched += u64::from(theirs != T::from(*ours));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_compared_by_value() {
        let ours = [0, 1, 1, 2, 0];
        let theirs = [1u8, 1, 0, 1, 0];
        let bytes =
            |each: &dyn Fn(u8) -> Vec<u8>| theirs.iter().flat_map(|label| each(*label)).collect::<Vec<_>>();
        let expected = Agreement { ours: 3, theirs: 3, both: 2, mismatched: 3 };
        for (data_type, theirs) in [
            (DataType::Fp32, bytes(&|label| f32::from(label).to_ne_bytes().to_vec())),
            (DataType::Fp16, bytes(&|label| f16::from(label).to_ne_bytes().to_vec())),
            (DataType::Uint8, theirs.to_vec()),
            (DataType::Bool, theirs.to_vec()),
            (DataType::Int8, theirs.to_vec()),
            (DataType::Int32, bytes(&|label| i32::from(label).to_ne_bytes().to_vec())),
            (DataType::Int64, bytes(&|label| i64::from(label).to_ne_bytes().to_vec())),
        ] {
            assert_eq!(Agreement::of(&ours, &theirs, data_type), Ok(expected), "{data_type}");
        }
        assert_eq!(expected.dice(), 2.0 / 3.0);
        assert!(Agreement::of(&ours, &[0; 10], DataType::Uint16).is_err());
    }

    #[test]
    fn two_empty_masks_agree_and_an_empty_one_with_another_does_not() {
        let dice = |ours: &[u8], theirs: &[u8]| Agreement::of(ours, theirs, DataType::Uint8).unwrap().dice();
        assert_eq!(dice(&[0, 0], &[0, 0]), 1.0);
        assert_eq!(dice(&[0, 0], &[0, 1]), 0.0);
        assert_eq!(dice(&[1, 0], &[1, 0]), 1.0);
    }
}
