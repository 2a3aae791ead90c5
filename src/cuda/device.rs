//! The steps of the pipeline on a session's GPU.

use triton_backend_api::Result;

use super::buffers::{Input, Labels, Logits, Output, Tensor};
use super::session::Session;
use super::steps::{self, COUNT_BYTES, FOUND_BYTES, Indices};
use super::transfer::part_of;
use crate::config::{KeepLargest, Scale};
use crate::native::{Placement, VoxelCount};
use crate::pipeline::{Argmax, CropScaleResize, Device};
use crate::volume::{Foreground, LabelType, Shape3};

impl Session<'_> {
    /// Copies an input to the GPU unless it is there, and waits. `arrived` is called for the voxels that kernels queued
    /// from then on find there, each once.
    fn bring<R>(
        &self,
        input: &Input<'_>,
        mut arrived: impl FnMut(std::ops::Range<usize>) -> Result<()>,
        then: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        const STEP: &str = "copying INPUT0";
        let (voxels, size) = (input.span.voxels, input.span.voxel_type.size());
        if input.is_there.get() {
            arrived(0..input.span.shape.count())?;
            return then();
        }
        let places = part_of(input.places, input.offset..input.offset + voxels.bytes());
        let mut whole = 0;
        let pieces = self.upload(places, voxels, STEP, |bytes| {
            // A voxel may come in two pieces.
            let range = whole..bytes.end / size;
            whole = range.end;
            arrived(range)
        })?;
        let result = then()?;
        self.wait(STEP)?;
        drop(pieces);
        input.is_there.set(true);
        Ok(result)
    }
}

impl Device for Session<'_> {
    type Input<'a> = Input<'a>;
    type Tensor = Tensor;
    type Logits<'a> = Logits<'a>;
    type Labels = Labels;
    type Output<'a> = Output<'a>;

    fn shape(&self, input: &Input<'_>) -> Shape3 {
        input.span.shape
    }

    fn find_foreground(&self, input: &Input<'_>, scale: &Scale) -> Result<Foreground> {
        const STEP: &str = "foreground";
        let found = self.memory(FOUND_BYTES, STEP)?;
        let bytes = self.step(STEP, || {
            steps::reset_foreground(self, found.span())?;
            let look = |range| steps::find_foreground(self, &input.span, range, scale, found.span());
            self.bring(input, look, || self.fetch(found.span(), STEP))
        })?;
        Ok(steps::foreground_of(&bytes))
    }

    fn crop_scale_resize(&self, input: &Input<'_>, plan: &CropScaleResize) -> Result<Tensor> {
        const STEP: &str = "resize";
        if !input.is_there.get() {
            self.bring(input, |_| Ok(()), || Ok(()))?;
        }
        let memory = self.memory(plan.size.count() * size_of::<f32>(), STEP)?;
        let scratch = self.memory(steps::resize_scratch(), STEP)?;
        self.step(STEP, || steps::crop_scale_resize(self, &input.span, plan, memory.span(), scratch.span()))?;
        Ok(Tensor { memory })
    }

    fn argmax(&self, logits: &Logits<'_>) -> Result<Argmax<Labels>> {
        const STEP: &str = "argmax";
        let shape = logits.shape;
        let highest = u8::try_from(logits.classes.saturating_sub(1)).unwrap_or(u8::MAX);
        let labels = Labels { memory: self.memory(shape.count(), STEP)?, shape, highest };
        let count = self.memory(size_of::<u64>(), STEP)?;
        self.step(STEP, || steps::argmax(self, &logits.span(), labels.memory.span(), count.span()))?;
        let nan_count = u64::from_ne_bytes(self.fetch(count.span(), STEP)?);
        Ok(Argmax { labels, nan_count })
    }

    fn keep_largest(&self, labels: Labels, keep: &KeepLargest) -> Result<Labels> {
        const STEP: &str = "components";
        let width = Indices::of(labels.shape);
        let scratch = self.memory(steps::keep_largest_scratch(labels.shape, width), STEP)?;
        self.step(STEP, || steps::keep_largest(self, &labels.span(), keep, scratch.span(), width))?;
        Ok(labels)
    }

    fn contour(&self, labels: &Labels) -> Result<Labels> {
        const STEP: &str = "contour";
        let out = Labels { memory: self.memory(labels.shape.count(), STEP)?, highest: 1, ..*labels };
        let scratch = self.memory(steps::contour_scratch(labels.shape), STEP)?;
        self.step(STEP, || steps::contour(self, &labels.span(), out.memory.span(), scratch.span()))?;
        Ok(out)
    }

    fn restore(&self, labels: &Labels, placement: &Placement) -> Result<(Labels, VoxelCount)> {
        const STEP: &str = "restore";
        let shape = placement.input_shape;
        let out = Labels { memory: self.memory(shape.count(), STEP)?, shape, highest: labels.highest };
        let counts = self.memory(COUNT_BYTES, STEP)?;
        self.step(STEP, || {
            steps::restore(self, &labels.span(), placement, out.memory.span(), counts.span())
        })?;
        Ok((out, steps::count_of(&self.fetch(counts.span(), STEP)?)))
    }

    fn count(&self, labels: &Labels, placement: &Placement) -> Result<VoxelCount> {
        const STEP: &str = "count";
        let counts = self.memory(COUNT_BYTES, STEP)?;
        self.step(STEP, || steps::count(self, &labels.span(), placement, counts.span()))?;
        Ok(steps::count_of(&self.fetch(counts.span(), STEP)?))
    }

    fn write(&self, labels: &Labels, output: Output<'_>) -> Result<()> {
        const STEP: &str = "write";
        if let Some(place) = output.on(self.gpu_id()) {
            self.step(STEP, || steps::convert(self, &labels.span(), output.label_type, place))?;
            return self.wait(STEP);
        }
        let size = output.label_type.size();
        let is_plain = output.label_type == LabelType::Uint8 || labels.highest <= 1;
        if size == 1 && is_plain {
            return self.download(labels.memory.span(), output.place, STEP);
        }
        let converted = self.memory(labels.shape.count() * size, STEP)?;
        self.step(STEP, || steps::convert(self, &labels.span(), output.label_type, converted.span()))?;
        self.download(converted.span(), output.place, STEP)
    }
}
