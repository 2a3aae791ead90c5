//! The steps of `cuda::steps` on a machine, each compared with the CPU's.

use std::fmt::Debug;

use triton_backend_api::{self as api, Error};
use triton_spleenseg::config::{KeepLargest, ResizeMode, Scale};
use triton_spleenseg::cpu::{HostDevice, Input, Labels, Logits, Output};
use triton_spleenseg::cuda::steps::{self, Indices, InputSpan, LabelsSpan, LogitsSpan};
use triton_spleenseg::native::Placement;
use triton_spleenseg::pipeline::CropScaleResize;
use triton_spleenseg::volume::LabelType;

use crate::cases::{Case, Image, Map, Scores};
use crate::machine::Machine;

/// How far resampled voxels may differ.
const TOLERANCE: f32 = 1e-5;

/// A machine, and the CPU's steps that it is compared with.
pub struct Steps<'s, M, C> {
    pub machine: &'s M,
    pub cpu: &'s C,
    /// How often the machine does each step anew: a race shows only now and then.
    pub times: usize,
}

impl<M: Machine, C: HostDevice> Steps<'_, M, C> {
    /// # Errors
    /// The machine gives something else than the CPU, or nothing: which case that is, on which machine, and what.
    pub fn check(&self, case: &Case) -> Result<(), String> {
        let outcome = match case {
            Case::Foreground { image, scale, pieces } => self.find_foreground(image, scale, *pieces),
            Case::Resize { image, plan } => self.crop_scale_resize(image, plan),
            Case::Argmax(scores) => self.argmax(scores),
            Case::KeepLargest { map, keep } => self.keep_largest(map, keep),
            Case::Contour(map) => self.contour(map),
            Case::Native { map, placement } => self.native(map, placement),
            Case::Convert { map, label_type } => self.convert(map, *label_type),
        };
        outcome.map_err(|why| format!("{case}; {:?}: {why}", self.machine))
    }

    fn find_foreground(&self, image: &Image, scale: &Scale, pieces: usize) -> api::Result<()> {
        let (machine, shape, voxel_type) = (self.machine, image.shape, image.voxel_type);
        let expected = self.cpu.find_foreground(&input(image)?, scale)?;
        let voxels = machine.holding(&image.bytes)?;
        let span = InputSpan { voxels: M::span(&voxels), voxel_type, shape };
        let each = shape.count().div_ceil(pieces);
        for _ in 0..self.times {
            let found = machine.room(steps::FOUND_BYTES)?;
            steps::reset_foreground(machine, M::span(&found))?;
            for start in (0..shape.count()).step_by(each) {
                steps::find_foreground(machine, &span, start..start + each, scale, M::span(&found))?;
            }
            equal(steps::foreground_of(&array(&machine.read(&found)?)?), expected)?;
        }
        Ok(())
    }

    fn crop_scale_resize(&self, image: &Image, plan: &CropScaleResize) -> api::Result<()> {
        let (machine, shape, voxel_type) = (self.machine, image.shape, image.voxel_type);
        let expected = self.cpu.crop_scale_resize(&input(image)?, plan)?;
        let voxels = machine.holding(&image.bytes)?;
        let span = InputSpan { voxels: M::span(&voxels), voxel_type, shape };
        let tolerance = if plan.mode == ResizeMode::Area { TOLERANCE } else { 0.0 };
        let close = |found: f32, expected: f32| {
            let both_nan = found.is_nan() && expected.is_nan();
            (found - expected).abs() <= tolerance || found == expected || both_nan
        };
        for _ in 0..self.times {
            let out = machine.room(plan.size.count() * 4)?;
            let scratch = machine.room(steps::resize_scratch())?;
            steps::crop_scale_resize(machine, &span, plan, M::span(&out), M::span(&scratch))?;
            let found = machine.read(&out)?;
            let found: Vec<f32> =
                found.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect();
            compare(&found, expected.data(), close)?;
        }
        Ok(())
    }

    fn argmax(&self, scores: &Scores) -> api::Result<()> {
        let machine = self.machine;
        let Scores { ref bytes, logit_type, classes, shape } = *scores;
        let expected = self.cpu.argmax(&Logits::new(bytes, logit_type, classes, shape)?)?;
        let scores = machine.holding(bytes)?;
        let span = LogitsSpan { scores: M::span(&scores), logit_type, classes, shape };
        for _ in 0..self.times {
            let (labels, count) = (machine.room(shape.count())?, machine.room(8)?);
            steps::argmax(machine, &span, M::span(&labels), M::span(&count))?;
            same(&machine.read(&labels)?, expected.labels.data())?;
            equal(u64::from_ne_bytes(array(&machine.read(&count)?)?), expected.nan_count)?;
        }
        Ok(())
    }

    fn keep_largest(&self, map: &Map, keep: &KeepLargest) -> api::Result<()> {
        let (machine, shape) = (self.machine, map.shape);
        let labels = labels(map)?;
        let highest = labels.highest();
        let expected = self.cpu.keep_largest(labels, keep)?;
        // Only volumes of 2^32 voxels need the wide indices; small ones show that they count the same.
        for width in [Indices::Bits32, Indices::Bits64].repeat(self.times) {
            let data = machine.holding(&map.data)?;
            let scratch = machine.room(steps::keep_largest_scratch(shape, width))?;
            let span = LabelsSpan { data: M::span(&data), shape, highest };
            steps::keep_largest(machine, &span, keep, M::span(&scratch), width)?;
            same(&machine.read(&data)?, expected.data()).map_err(|why| why.context(format!("{width:?}")))?;
        }
        Ok(())
    }

    fn contour(&self, map: &Map) -> api::Result<()> {
        let (machine, shape) = (self.machine, map.shape);
        let labels = labels(map)?;
        let expected = self.cpu.contour(&labels)?;
        let data = machine.holding(&map.data)?;
        // The way for many labels is right for two as well.
        for highest in [labels.highest(), labels.highest().max(2)].repeat(self.times) {
            let out = machine.room(shape.count())?;
            let scratch = machine.room(steps::contour_scratch(shape))?;
            let span = LabelsSpan { data: M::span(&data), shape, highest };
            steps::contour(machine, &span, M::span(&out), M::span(&scratch))?;
            same(&machine.read(&out)?, expected.data())
                .map_err(|why| why.context(format!("labels up to {highest}")))?;
        }
        Ok(())
    }

    fn native(&self, map: &Map, placement: &Placement) -> api::Result<()> {
        let (machine, shape) = (self.machine, map.shape);
        let labels = labels(map)?;
        let (expected, voxels) = self.cpu.restore(&labels, placement)?;
        let data = machine.holding(&map.data)?;
        let span = LabelsSpan { data: M::span(&data), shape, highest: labels.highest() };
        for _ in 0..self.times {
            let out = machine.room(placement.input_shape.count())?;
            let counts = machine.room(steps::COUNT_BYTES)?;
            steps::restore(machine, &span, placement, M::span(&out), M::span(&counts))?;
            same(&machine.read(&out)?, expected.data())?;
            equal(steps::count_of(&array(&machine.read(&counts)?)?), voxels)?;
            steps::count(machine, &span, placement, M::span(&counts))?;
            equal(steps::count_of(&array(&machine.read(&counts)?)?), voxels)
                .map_err(|why| why.context("without an output"))?;
        }
        Ok(())
    }

    fn convert(&self, map: &Map, label_type: LabelType) -> api::Result<()> {
        let (machine, shape) = (self.machine, map.shape);
        let labels = labels(map)?;
        let mut expected = vec![0; shape.count() * label_type.size()];
        let accepted = self.cpu.write(&labels, Output::new(&mut expected, label_type)).is_ok();
        let data = machine.holding(&map.data)?;
        let span = LabelsSpan { data: M::span(&data), shape, highest: labels.highest() };
        for _ in 0..self.times {
            let out = machine.room(expected.len())?;
            equal(steps::convert(machine, &span, label_type, M::span(&out)).is_ok(), accepted)?;
            if accepted {
                same(&machine.read(&out)?, &expected).map_err(|why| why.context("bytes"))?;
            }
        }
        Ok(())
    }
}

fn array<const SIZE: usize>(bytes: &[u8]) -> api::Result<[u8; SIZE]> {
    bytes.try_into().map_err(|_| Error::internal(format!("{} bytes were read, not {SIZE}", bytes.len())))
}

fn equal<T: PartialEq + Debug>(found: T, expected: T) -> api::Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::internal(format!("{found:?}, CPU {expected:?}")))
}

fn same(found: &[u8], expected: &[u8]) -> api::Result<()> {
    if found == expected { Ok(()) } else { compare(found, expected, |found, expected| found == expected) }
}

/// How many values are not the same, and which is the first.
fn compare<T: Copy + Debug>(found: &[T], expected: &[T], is_same: impl Fn(T, T) -> bool) -> api::Result<()> {
    equal(found.len(), expected.len())?;
    let pairs = found.iter().zip(expected).enumerate();
    let mut others = pairs.filter(|(_, (found, expected))| !is_same(**found, **expected));
    let Some((at, (first, wanted))) = others.next() else { return Ok(()) };
    let (count, of) = (1 + others.count(), expected.len());
    Err(Error::internal(format!("{count} of {of} differ, first {at}: {first:?}, CPU {wanted:?}")))
}

fn input(image: &Image) -> api::Result<Input<'_>> {
    Input::new(&image.bytes, image.voxel_type, image.shape)
}

fn labels(map: &Map) -> api::Result<Labels> {
    Labels::new(&map.data, map.shape)
}
