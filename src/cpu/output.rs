//! Labels to the element type of an output, written once.

use half::f16;
use rayon::prelude::*;
use triton_backend_api::Result;

use super::buffers::{Labels, Output, check_size};
use super::reference;
use super::simd::{self, Kernel};
use crate::volume::LabelType;

/// Labels that a thread takes at a time.
const CHUNK: usize = 1 << 16;
/// Labels that are converted at a time, in the nearest cache.
const BLOCK: usize = 2048;

pub(super) fn write(labels: &Labels, output: Output<'_>) -> Result<()> {
    let Output { bytes, label_type } = output;
    check_size("an output buffer", bytes.len(), labels.data().len(), label_type.size())?;
    match label_type {
        LabelType::Fp32 => convert(labels, bytes, |label| f32::from(label).to_ne_bytes()),
        LabelType::Int32 => convert(labels, bytes, |label| i32::from(label).to_ne_bytes()),
        LabelType::Int64 => convert(labels, bytes, |label| i64::from(label).to_ne_bytes()),
        LabelType::Fp16 if labels.highest() <= 1 => {
            convert(labels, bytes, |label| if label == 0 { f16::ZERO } else { f16::ONE }.to_ne_bytes());
        }
        _ => return reference::output::write(labels, Output { bytes, label_type }),
    }
    Ok(())
}

fn convert<const SIZE: usize>(
    labels: &Labels,
    bytes: &mut [u8],
    element: impl Fn(u8) -> [u8; SIZE] + Sync + Copy,
) {
    let places = bytes.as_chunks_mut().0.par_chunks_mut(CHUNK);
    places
        .zip(labels.data().par_chunks(CHUNK))
        .for_each(|(places, labels)| simd::run(Convert { labels, places, element }));
}

struct Convert<'a, F, const SIZE: usize> {
    labels: &'a [u8],
    places: &'a mut [[u8; SIZE]],
    element: F,
}

impl<F: Fn(u8) -> [u8; SIZE], const SIZE: usize> Kernel for Convert<'_, F, SIZE> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut block = [[0; SIZE]; BLOCK];
        for (places, labels) in self.places.chunks_mut(BLOCK).zip(self.labels.chunks(BLOCK)) {
            let block = &mut block[..labels.len()];
            for (element, label) in block.iter_mut().zip(labels) {
                *element = (self.element)(*label);
            }
            simd::stream(block.as_flattened(), places.as_flattened_mut());
        }
    }
}
