//! For tests: each step on the reference, in its faster form, and on the emulated GPU, which must agree.

use std::sync::LazyLock;

use triton_backend_api::Result;

use super::reference::Reference;
use super::{Cpu, Input, Labels, Logits, Output, Tensor, Threads};
use crate::config::{KeepLargest, ResizeMode, Scale};
#[cfg(feature = "cuda")]
use crate::cuda::testing as gpu;
use crate::native::{Placement, VoxelCount};
use crate::pipeline::{Argmax, CropScaleResize, Device};
use crate::volume::{Foreground, LabelType, Shape3};

/// How far resampled voxels may differ, in parts of the largest or of 1.
const TOLERANCE: f32 = 1e-5;

static REFERENCE: LazyLock<Reference> = LazyLock::new(Reference::default);
/// Three threads, so that the pieces of the work do not come out even.
static CPU: LazyLock<Cpu> = LazyLock::new(|| Cpu::new(Threads::new(3).unwrap(), 1));

pub fn find_foreground(input: &Input<'_>, scale: &Scale) -> Foreground {
    let expected = REFERENCE.find_foreground(input, scale).unwrap();
    let found = CPU.find_foreground(input, scale).unwrap();
    assert_eq!(found.bounding_box, expected.bounding_box);
    match found.bounding_box {
        Some(crop) => {
            // Voxels that are no finite number are counted in the end, whatever the resize looks at.
            for mode in [ResizeMode::Area, ResizeMode::Nearest] {
                let plan =
                    CropScaleResize { scale: *scale, crop, size: Shape3::new([3, 2, 4]).unwrap(), mode };
                let resized = CPU.crop_scale_resize(input, &plan).unwrap();
                assert_eq!(CPU.count_not_finite(input, found, &resized).unwrap(), expected);
            }
        }
        None => assert_eq!(found, expected),
    }
    #[cfg(feature = "cuda")]
    assert_eq!(gpu::find_foreground(input, scale), expected);
    expected
}

pub fn crop_scale_resize(input: &Input<'_>, plan: &CropScaleResize) -> Tensor {
    let expected = REFERENCE.crop_scale_resize(input, plan).unwrap();
    let found = CPU.crop_scale_resize(input, plan).unwrap();
    assert_eq!(found.shape(), expected.shape());
    assert_close(found.data(), expected.data());
    #[cfg(feature = "cuda")]
    assert_close(&gpu::crop_scale_resize(input, plan), expected.data());
    expected
}

fn assert_close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    let finite = expected.iter().filter(|value| value.is_finite());
    let tolerance = TOLERANCE * finite.fold(1.0, |largest: f32, value| largest.max(value.abs()));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let close = (found - expected).abs() <= tolerance || found == expected;
        assert!(close || found.is_nan() && expected.is_nan(), "voxel {at}: {found}, reference {expected}");
    }
}

pub fn argmax(logits: &Logits<'_>) -> Argmax<Labels> {
    let (found, expected) = (CPU.argmax(logits).unwrap(), REFERENCE.argmax(logits).unwrap());
    assert_eq!(found.labels.data(), expected.labels.data());
    assert_eq!(found.nan_count, expected.nan_count);
    #[cfg(feature = "cuda")]
    assert_eq!(found, gpu::argmax(logits));
    found
}

pub fn keep_largest(labels: &Labels, keep: &KeepLargest) -> Labels {
    let copy = || Labels::new(labels.data(), labels.shape()).unwrap();
    let found = CPU.keep_largest(copy(), keep).unwrap();
    assert_eq!(found.data(), REFERENCE.keep_largest(copy(), keep).unwrap().data());
    #[cfg(feature = "cuda")]
    assert_eq!(found, gpu::keep_largest(labels, keep));
    found
}

pub fn contour(labels: &Labels) -> Labels {
    let found = CPU.contour(labels).unwrap();
    assert_eq!(found.data(), REFERENCE.contour(labels).unwrap().data());
    #[cfg(feature = "cuda")]
    assert_eq!(found, gpu::contour(labels));
    found
}

pub fn restore(labels: &Labels, placement: &Placement) -> Labels {
    let found = CPU.restore(labels, placement).unwrap();
    assert_eq!(found, REFERENCE.restore(labels, placement).unwrap());
    #[cfg(feature = "cuda")]
    assert_eq!(found, gpu::restore(labels, placement));
    found.0
}

pub fn count(labels: &Labels, placement: &Placement) -> VoxelCount {
    let found = CPU.count(labels, placement).unwrap();
    assert_eq!(found, REFERENCE.count(labels, placement).unwrap());
    #[cfg(feature = "cuda")]
    assert_eq!(found, gpu::count(labels, placement));
    found
}

pub fn write(labels: &Labels, bytes: &mut [u8], label_type: LabelType) -> Result<()> {
    let mut expected = bytes.to_vec();
    let outcome = REFERENCE.write(labels, Output::new(&mut expected, label_type));
    assert_eq!(CPU.write(labels, Output::new(bytes, label_type)), outcome);
    assert_eq!(bytes, expected);
    #[cfg(feature = "cuda")]
    {
        let written = gpu::write(labels, bytes, label_type);
        assert_eq!(written.is_ok(), outcome.is_ok());
        if written.is_ok() {
            assert_eq!(bytes, expected);
        }
    }
    outcome
}
