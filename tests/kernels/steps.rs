//! The steps of `cuda::steps` on a machine, each compared with the CPU's.

use std::fmt::Debug;

use triton_spleenseg::config::{KeepLargest, ResizeMode, Scale};
use triton_spleenseg::cpu::{Input, Labels, Logits, Output, Tensor};
use triton_spleenseg::cuda::steps::{self, Indices, InputSpan, LabelsSpan, LogitsSpan};
use triton_spleenseg::native::Placement;
use triton_spleenseg::pipeline::{CropScaleResize, Device};
use triton_spleenseg::volume::LabelType;

use crate::cases::{Case, Image, Map, Scores};
use crate::machine::Machine;

/// How far resampled voxels may differ.
const TOLERANCE: f32 = 1e-5;

/// The steps on the CPU, in one of their forms.
pub trait Cpu:
    for<'a> Device<
        Input<'a> = Input<'a>,
        Tensor = Tensor,
        Logits<'a> = Logits<'a>,
        Labels = Labels,
        Output<'a> = Output<'a>,
    >
{
}

impl<D> Cpu for D where
    D: for<'a> Device<
            Input<'a> = Input<'a>,
            Tensor = Tensor,
            Logits<'a> = Logits<'a>,
            Labels = Labels,
            Output<'a> = Output<'a>,
        >
{
}

/// A machine, and the CPU's steps that it is compared with.
pub struct Steps<'s, M, C> {
    pub machine: &'s M,
    pub cpu: &'s C,
    /// How often the machine does each step anew: a race shows only now and then.
    pub times: usize,
}

fn array<const SIZE: usize>(bytes: &[u8]) -> [u8; SIZE] {
    bytes.try_into().unwrap()
}

impl<M: Machine, C: Cpu> Steps<'_, M, C> {
    /// Panics where the machine gives something else than the CPU.
    pub fn check(&self, case: &Case) {
        match case {
            Case::Foreground { image, scale, pieces } => self.find_foreground(image, scale, *pieces),
            Case::Resize { image, plan } => self.crop_scale_resize(image, plan),
            Case::Argmax(scores) => self.argmax(scores),
            Case::KeepLargest { map, keep } => self.keep_largest(map, keep),
            Case::Contour(map) => self.contour(map),
            Case::Native { map, placement } => self.native(map, placement),
            Case::Convert { map, label_type } => self.convert(map, *label_type),
        }
    }

    fn find_foreground(&self, image: &Image, scale: &Scale, pieces: usize) {
        let (machine, shape, voxel_type) = (self.machine, image.shape, image.voxel_type);
        let expected = self.cpu.find_foreground(&input(image), scale).unwrap();
        let voxels = machine.holding(&image.bytes).unwrap();
        let span = InputSpan { voxels: M::span(&voxels), voxel_type, shape };
        let each = shape.count().div_ceil(pieces);
        for _ in 0..self.times {
            let found = machine.room(steps::FOUND_BYTES).unwrap();
            steps::reset_foreground(machine, M::span(&found)).unwrap();
            for start in (0..shape.count()).step_by(each) {
                steps::find_foreground(machine, &span, start..start + each, scale, M::span(&found)).unwrap();
            }
            let found = steps::foreground_of(&array(&machine.read(&found).unwrap()));
            assert_eq!(found, expected, "{machine:?} {shape} {scale:?}");
        }
    }

    fn crop_scale_resize(&self, image: &Image, plan: &CropScaleResize) {
        let (machine, shape, voxel_type) = (self.machine, image.shape, image.voxel_type);
        let expected = self.cpu.crop_scale_resize(&input(image), plan).unwrap();
        let voxels = machine.holding(&image.bytes).unwrap();
        let span = InputSpan { voxels: M::span(&voxels), voxel_type, shape };
        let tolerance = if plan.mode == ResizeMode::Area { TOLERANCE } else { 0.0 };
        for _ in 0..self.times {
            let out = machine.room(plan.size.count() * 4).unwrap();
            let scratch = machine.room(steps::resize_scratch()).unwrap();
            steps::crop_scale_resize(machine, &span, plan, M::span(&out), M::span(&scratch)).unwrap();
            let found = machine.read(&out).unwrap();
            let found: Vec<f32> =
                found.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect();
            let close = |found: f32, expected: f32| {
                let both_nan = found.is_nan() && expected.is_nan();
                (found - expected).abs() <= tolerance || found == expected || both_nan
            };
            compare(&found, expected.data(), close, || format!("resize, {machine:?} {shape} {plan:?}"));
        }
    }

    fn argmax(&self, scores: &Scores) {
        let machine = self.machine;
        let Scores { ref bytes, logit_type, classes, shape } = *scores;
        let logits = Logits::new(bytes, logit_type, classes, shape).unwrap();
        let expected = self.cpu.argmax(&logits).unwrap();
        let scores = machine.holding(bytes).unwrap();
        let span = LogitsSpan { scores: M::span(&scores), logit_type, classes, shape };
        for _ in 0..self.times {
            let (labels, count) = (machine.room(shape.count()).unwrap(), machine.room(8).unwrap());
            steps::argmax(machine, &span, M::span(&labels), M::span(&count)).unwrap();
            same(&machine.read(&labels).unwrap(), expected.labels.data(), || {
                format!("argmax, {machine:?} {shape} {classes} classes {logit_type:?}")
            });
            let count = u64::from_ne_bytes(array(&machine.read(&count).unwrap()));
            assert_eq!(count, expected.nan_count, "NaN: {machine:?} {shape}");
        }
    }

    fn keep_largest(&self, map: &Map, keep: &KeepLargest) {
        let (machine, shape) = (self.machine, map.shape);
        let labels = labels(map);
        let highest = labels.highest();
        let expected = self.cpu.keep_largest(labels, keep).unwrap();
        // Only volumes of 2^32 voxels need the wide indices; small ones show that they count the same.
        for width in [Indices::Bits32, Indices::Bits64].repeat(self.times) {
            let data = machine.holding(&map.data).unwrap();
            let scratch = machine.room(steps::keep_largest_scratch(shape, width)).unwrap();
            let span = LabelsSpan { data: M::span(&data), shape, highest };
            steps::keep_largest(machine, &span, keep, M::span(&scratch), width).unwrap();
            same(&machine.read(&data).unwrap(), expected.data(), || {
                format!("components, {machine:?} {shape} {keep:?} {width:?}")
            });
        }
    }

    fn contour(&self, map: &Map) {
        let (machine, shape) = (self.machine, map.shape);
        let labels = labels(map);
        let expected = self.cpu.contour(&labels).unwrap();
        let data = machine.holding(&map.data).unwrap();
        // The way for many labels is right for two as well.
        for highest in [labels.highest(), labels.highest().max(2)].repeat(self.times) {
            let out = machine.room(shape.count()).unwrap();
            let scratch = machine.room(steps::contour_scratch(shape)).unwrap();
            let span = LabelsSpan { data: M::span(&data), shape, highest };
            steps::contour(machine, &span, M::span(&out), M::span(&scratch)).unwrap();
            same(&machine.read(&out).unwrap(), expected.data(), || {
                format!("contour, {machine:?} {shape} {highest}")
            });
        }
    }

    fn native(&self, map: &Map, placement: &Placement) {
        let (machine, shape) = (self.machine, map.shape);
        let labels = labels(map);
        let (expected, voxels) = self.cpu.restore(&labels, placement).unwrap();
        let data = machine.holding(&map.data).unwrap();
        let span = LabelsSpan { data: M::span(&data), shape, highest: labels.highest() };
        for _ in 0..self.times {
            let out = machine.room(placement.input_shape.count()).unwrap();
            let counts = machine.room(steps::COUNT_BYTES).unwrap();
            steps::restore(machine, &span, placement, M::span(&out), M::span(&counts)).unwrap();
            same(&machine.read(&out).unwrap(), expected.data(), || {
                format!("restore, {machine:?} {shape} {placement:?}")
            });
            let counted = || steps::count_of(&array(&machine.read(&counts).unwrap()));
            assert_eq!(counted(), voxels, "{machine:?} {shape} {placement:?}");
            steps::count(machine, &span, placement, M::span(&counts)).unwrap();
            assert_eq!(counted(), voxels, "without an output: {machine:?} {shape} {placement:?}");
        }
    }

    fn convert(&self, map: &Map, label_type: LabelType) {
        let (machine, shape) = (self.machine, map.shape);
        let labels = labels(map);
        let mut expected = vec![0; shape.count() * label_type.size()];
        let accepted = self.cpu.write(&labels, Output::new(&mut expected, label_type)).is_ok();
        let data = machine.holding(&map.data).unwrap();
        let span = LabelsSpan { data: M::span(&data), shape, highest: labels.highest() };
        for _ in 0..self.times {
            let out = machine.room(expected.len()).unwrap();
            assert_eq!(steps::convert(machine, &span, label_type, M::span(&out)).is_ok(), accepted);
            if accepted {
                same(&machine.read(&out).unwrap(), &expected, || {
                    format!("write, bytes, {machine:?} {shape} {label_type:?}")
                });
            }
        }
    }
}

/// Panics unless all values are the same: how many are not, and which is the first.
fn same(found: &[u8], expected: &[u8], what: impl FnOnce() -> String) {
    if found != expected {
        compare(found, expected, |found, expected| found == expected, what);
    }
}

fn compare<T: Copy + Debug>(
    found: &[T],
    expected: &[T],
    is_same: impl Fn(T, T) -> bool,
    what: impl FnOnce() -> String,
) {
    assert_eq!(found.len(), expected.len());
    let pairs = found.iter().zip(expected).enumerate();
    let mut others = pairs.filter(|(_, (found, expected))| !is_same(**found, **expected));
    if let Some((at, (first, wanted))) = others.next() {
        let (count, of) = (1 + others.count(), expected.len());
        panic!("{count} of {of} differ, first {at}: {first:?}, CPU {wanted:?}; {}", what());
    }
}

fn input(image: &Image) -> Input<'_> {
    Input::new(&image.bytes, image.voxel_type, image.shape).unwrap()
}

fn labels(map: &Map) -> Labels {
    Labels::new(&map.data, map.shape).unwrap()
}
