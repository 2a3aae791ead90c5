//! The steps of `cuda::steps` on host memory, each compared with the CPU's.

use triton_spleenseg::config::{KeepLargest, ResizeMode, Scale};
use triton_spleenseg::cpu::reference::Reference;
use triton_spleenseg::cpu::{Input, Labels, Logits, Output};
use triton_spleenseg::cuda::steps::{self, Indices, InputSpan, LabelsSpan, LogitsSpan};
use triton_spleenseg::native::Placement;
use triton_spleenseg::pipeline::{CropScaleResize, Device};
use triton_spleenseg::volume::{Foreground, LabelType, LogitType, Shape3, VoxelType};

use crate::host::{Buffer, Host};

/// How far resampled voxels may differ.
const TOLERANCE: f32 = 1e-5;

/// In its plainest form, which the faster one is compared with elsewhere; and without threads, of which a sanitizer would
/// have to know.
fn cpu() -> Reference {
    Reference::default()
}

impl Host {
    pub fn find_foreground(
        &self,
        bytes: &[u8],
        voxel_type: VoxelType,
        shape: Shape3,
        scale: &Scale,
        pieces: usize,
    ) -> Foreground {
        let expected = cpu().find_foreground(&Input::new(bytes, voxel_type, shape).unwrap(), scale).unwrap();
        let (voxels, found) = (Buffer::of(bytes), Buffer::new(steps::FOUND_BYTES));
        let input = InputSpan { voxels: voxels.span(), voxel_type, shape };
        steps::reset_foreground(self, found.span()).unwrap();
        let each = shape.count().div_ceil(pieces);
        for start in (0..shape.count()).step_by(each) {
            steps::find_foreground(self, &input, start..start + each, scale, found.span()).unwrap();
        }
        let found = steps::foreground_of(&found.array());
        assert_eq!(found, expected, "{self:?} {shape} {scale:?}");
        found
    }

    pub fn crop_scale_resize(
        &self,
        bytes: &[u8],
        voxel_type: VoxelType,
        shape: Shape3,
        plan: &CropScaleResize,
    ) {
        let expected = cpu().crop_scale_resize(&Input::new(bytes, voxel_type, shape).unwrap(), plan).unwrap();
        let voxels = Buffer::of(bytes);
        let (out, scratch) = (Buffer::new(plan.size.count() * 4), Buffer::new(steps::resize_scratch()));
        let input = InputSpan { voxels: voxels.span(), voxel_type, shape };
        steps::crop_scale_resize(self, &input, plan, out.span(), scratch.span()).unwrap();
        let found = out.bytes().as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes));
        let tolerance = if plan.mode == ResizeMode::Area { TOLERANCE } else { 0.0 };
        for (at, (found, expected)) in found.zip(expected.data()).enumerate() {
            let close = (found - expected).abs() <= tolerance || found == *expected;
            assert!(
                close || found.is_nan() && expected.is_nan(),
                "voxel {at}: {found}, CPU {expected}; {self:?} {shape} {plan:?}"
            );
        }
    }

    pub fn argmax(&self, bytes: &[u8], logit_type: LogitType, classes: usize, shape: Shape3) {
        let expected = cpu().argmax(&Logits::new(bytes, logit_type, classes, shape).unwrap()).unwrap();
        let (scores, labels, count) = (Buffer::of(bytes), Buffer::new(shape.count()), Buffer::new(8));
        let logits = LogitsSpan { scores: scores.span(), logit_type, classes, shape };
        steps::argmax(self, &logits, labels.span(), count.span()).unwrap();
        assert_eq!(labels.bytes(), expected.labels.data(), "{self:?} {shape}");
        assert_eq!(u64::from_ne_bytes(count.array()), expected.nan_count);
    }

    pub fn keep_largest(&self, data: &[u8], shape: Shape3, keep: &KeepLargest) {
        let labels = Labels::new(data, shape).unwrap();
        let highest = labels.highest();
        let expected = cpu().keep_largest(labels, keep).unwrap();
        // Only volumes of 2^32 voxels need the wide indices; small ones show that they count the same.
        for width in [Indices::Bits32, Indices::Bits64] {
            let labels = Buffer::of(data);
            let scratch = Buffer::new(steps::keep_largest_scratch(shape, width));
            let span = LabelsSpan { data: labels.span(), shape, highest };
            steps::keep_largest(self, &span, keep, scratch.span(), width).unwrap();
            assert!(
                labels.bytes() == expected.data(),
                "other voxels stay: {self:?} {shape} {keep:?} {width:?}"
            );
        }
    }

    pub fn contour(&self, data: &[u8], shape: Shape3) {
        let labels = Labels::new(data, shape).unwrap();
        let expected = cpu().contour(&labels).unwrap();
        let (data, out) = (Buffer::of(data), Buffer::new(shape.count()));
        let scratch = Buffer::new(steps::contour_scratch(shape));
        // The way for many labels is right for two as well.
        for highest in [labels.highest(), labels.highest().max(2)] {
            let span = LabelsSpan { data: data.span(), shape, highest };
            steps::contour(self, &span, out.span(), scratch.span()).unwrap();
            assert!(out.bytes() == expected.data(), "other voxels are contour: {self:?} {shape} {highest}");
        }
    }

    pub fn native(&self, data: &[u8], shape: Shape3, placement: &Placement) {
        let labels = Labels::new(data, shape).unwrap();
        let (expected, voxels) = cpu().restore(&labels, placement).unwrap();
        let (data, out) = (Buffer::of(data), Buffer::new(placement.input_shape.count()));
        let counts = Buffer::new(steps::COUNT_BYTES);
        let span = LabelsSpan { data: data.span(), shape, highest: labels.highest() };
        steps::restore(self, &span, placement, out.span(), counts.span()).unwrap();
        assert!(out.bytes() == expected.data(), "other voxels: {self:?} {shape} {placement:?}");
        assert_eq!(steps::count_of(&counts.array()), voxels);
        steps::count(self, &span, placement, counts.span()).unwrap();
        assert_eq!(steps::count_of(&counts.array()), voxels, "without an output");
    }

    pub fn convert(&self, data: &[u8], shape: Shape3, label_type: LabelType) {
        let labels = Labels::new(data, shape).unwrap();
        let mut expected = vec![0; shape.count() * label_type.size()];
        let accepted = cpu().write(&labels, Output::new(&mut expected, label_type)).is_ok();
        let (data, out) = (Buffer::of(data), Buffer::new(expected.len()));
        let span = LabelsSpan { data: data.span(), shape, highest: labels.highest() };
        assert_eq!(steps::convert(self, &span, label_type, out.span()).is_ok(), accepted);
        assert!(!accepted || out.bytes() == expected, "{self:?} {shape} {label_type:?}");
    }
}
