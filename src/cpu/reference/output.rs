//! Labels to the element type of an output.

use half::f16;
use triton_backend_api::{Error, Result};

use crate::cpu::buffers::{Labels, Output, check_size};
use crate::volume::LabelType;

pub(in crate::cpu) fn write(labels: &Labels, output: Output<'_>) -> Result<()> {
    let Output { bytes, label_type } = output;
    let labels = labels.data();
    check_size("an output buffer", bytes.len(), labels.len(), label_type.size())?;
    match label_type {
        LabelType::Fp32 => convert(labels, bytes, |label| f32::from(label).to_ne_bytes()),
        LabelType::Fp16 => convert(labels, bytes, |label| f16::from(label).to_ne_bytes()),
        LabelType::Uint8 => bytes.copy_from_slice(labels),
        LabelType::Int32 => convert(labels, bytes, |label| i32::from(label).to_ne_bytes()),
        LabelType::Int64 => convert(labels, bytes, |label| i64::from(label).to_ne_bytes()),
        LabelType::Bool => {
            if let Some(label) = labels.iter().find(|&&label| label > 1) {
                return Err(Error::invalid_arg(format!(
                    "label {label} does not fit BOOL; accepted are 0 and 1"
                )));
            }
            bytes.copy_from_slice(labels);
        }
    }
    Ok(())
}

fn convert<const SIZE: usize>(labels: &[u8], bytes: &mut [u8], element: impl Fn(u8) -> [u8; SIZE]) {
    for (place, &label) in bytes.as_chunks_mut().0.iter_mut().zip(labels) {
        *place = element(label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::both;
    use crate::volume::Shape3;

    fn written(labels: &[u8], label_type: LabelType) -> Result<Vec<u8>> {
        let shape = Shape3::new([1, 1, labels.len() as i64])?;
        let mut bytes = vec![0xAA; labels.len() * label_type.size()];
        both::write(&Labels::new(labels, shape)?, &mut bytes, label_type)?;
        Ok(bytes)
    }

    #[test]
    fn every_type_holds_the_exact_value() {
        let labels: Vec<u8> = (0..=255).collect();
        let values = || labels.iter().map(|&label| u16::from(label));
        let bytes = |label_type| written(&labels, label_type).unwrap();
        assert_eq!(bytes(LabelType::Uint8), labels);
        assert_eq!(
            bytes(LabelType::Fp32),
            values().flat_map(|v| f32::from(v).to_ne_bytes()).collect::<Vec<_>>()
        );
        assert_eq!(
            bytes(LabelType::Int32),
            values().flat_map(|v| i32::from(v).to_ne_bytes()).collect::<Vec<_>>()
        );
        assert_eq!(
            bytes(LabelType::Int64),
            values().flat_map(|v| i64::from(v).to_ne_bytes()).collect::<Vec<_>>()
        );
        let halves = bytes(LabelType::Fp16);
        assert!(
            values()
                .zip(halves.as_chunks().0)
                .all(|(v, &half)| f16::from_ne_bytes(half).to_f32() == f32::from(v))
        );
    }

    #[test]
    fn bool_takes_0_and_1_and_refuses_other_labels() {
        assert_eq!(written(&[0, 1, 1], LabelType::Bool).unwrap(), [0, 1, 1]);
        let error = written(&[0, 1, 2], LabelType::Bool).unwrap_err();
        assert!(error.message().contains("label 2 does not fit BOOL"), "{error}");
    }

    #[test]
    fn a_buffer_of_another_size_is_refused() {
        let labels = Labels::new(&[1; 4], Shape3::new([1, 2, 2]).unwrap()).unwrap();
        assert!(both::write(&labels, &mut [0; 15], LabelType::Fp32).is_err());
    }
}
