//! The CUDA kernels, compiled for the host, as a device.

use triton_backend_api::Result;
use triton_spleenseg::config::{KeepLargest, Scale};
use triton_spleenseg::cpu::{Input, Labels, Logits, Output, Tensor};
use triton_spleenseg::cuda::steps::{self, Indices, InputSpan, LabelsSpan, LogitsSpan};
use triton_spleenseg::native::{Placement, VoxelCount};
use triton_spleenseg::pipeline::{Argmax, CropScaleResize, Device};
use triton_spleenseg::volume::{Foreground, Shape3};

use crate::host::{Buffer, Host};

/// Blocks of 64 threads, in an order by chance.
pub struct Kernels(Host);

impl Default for Kernels {
    fn default() -> Self {
        let order = host_kernels::Order { seed: 20, workers: 1 };
        Self(Host { block: 64, multiprocessors: 1, order })
    }
}

/// A buffer's bytes, which are this many.
fn array<const SIZE: usize>(buffer: &Buffer) -> [u8; SIZE] {
    let mut array = [0; SIZE];
    array.copy_from_slice(buffer.bytes());
    array
}

/// Labels in memory of their own.
fn buffer(labels: &Labels) -> Buffer {
    Buffer::of(labels.data())
}

fn span<'b>(buffer: &'b Buffer, labels: &Labels) -> LabelsSpan<'b> {
    LabelsSpan { data: buffer.span(), shape: labels.shape(), highest: labels.highest() }
}

fn input_span<'b>(buffer: &'b Buffer, input: &Input<'_>) -> InputSpan<'b> {
    InputSpan { voxels: buffer.span(), voxel_type: input.voxel_type(), shape: input.shape() }
}

impl Device for Kernels {
    type Input<'a> = Input<'a>;
    type Tensor = Tensor;
    type Logits<'a> = Logits<'a>;
    type Labels = Labels;
    type Output<'a> = Output<'a>;

    fn shape(&self, input: &Input<'_>) -> Shape3 {
        input.shape()
    }

    fn find_foreground(&self, input: &Input<'_>, scale: &Scale) -> Result<Foreground> {
        let (voxels, found) = (Buffer::of(input.bytes()), Buffer::new(steps::FOUND_BYTES));
        steps::reset_foreground(&self.0, found.span())?;
        let range = 0..input.shape().count();
        steps::find_foreground(&self.0, &input_span(&voxels, input), range, scale, found.span())?;
        Ok(steps::foreground_of(&array(&found)))
    }

    fn crop_scale_resize(&self, input: &Input<'_>, plan: &CropScaleResize) -> Result<Tensor> {
        let (voxels, scratch) = (Buffer::of(input.bytes()), Buffer::new(steps::resize_scratch()));
        let out = Buffer::new(plan.size.count() * size_of::<f32>());
        steps::crop_scale_resize(&self.0, &input_span(&voxels, input), plan, out.span(), scratch.span())?;
        let resized: Vec<f32> =
            out.bytes().as_chunks().0.iter().map(|value| f32::from_ne_bytes(*value)).collect();
        Tensor::new(&resized, plan.size)
    }

    fn argmax(&self, logits: &Logits<'_>) -> Result<Argmax<Labels>> {
        let (scores, labels) = (Buffer::of(logits.bytes()), Buffer::new(logits.shape().count()));
        let (count, shape) = (Buffer::new(8), logits.shape());
        let span = LogitsSpan {
            scores: scores.span(),
            logit_type: logits.logit_type(),
            classes: logits.classes(),
            shape,
        };
        steps::argmax(&self.0, &span, labels.span(), count.span())?;
        Ok(Argmax {
            labels: Labels::new(labels.bytes(), shape)?,
            nan_count: u64::from_ne_bytes(array(&count)),
        })
    }

    fn keep_largest(&self, labels: Labels, keep: &KeepLargest) -> Result<Labels> {
        let width = Indices::of(labels.shape());
        let (data, scratch) =
            (buffer(&labels), Buffer::new(steps::keep_largest_scratch(labels.shape(), width)));
        steps::keep_largest(&self.0, &span(&data, &labels), keep, scratch.span(), width)?;
        Labels::new(data.bytes(), labels.shape())
    }

    fn contour(&self, labels: &Labels) -> Result<Labels> {
        let (data, out) = (buffer(labels), Buffer::new(labels.shape().count()));
        let scratch = Buffer::new(steps::contour_scratch(labels.shape()));
        steps::contour(&self.0, &span(&data, labels), out.span(), scratch.span())?;
        Labels::new(out.bytes(), labels.shape())
    }

    fn restore(&self, labels: &Labels, placement: &Placement) -> Result<(Labels, VoxelCount)> {
        let (data, out) = (buffer(labels), Buffer::new(placement.input_shape.count()));
        let counts = Buffer::new(steps::COUNT_BYTES);
        steps::restore(&self.0, &span(&data, labels), placement, out.span(), counts.span())?;
        Ok((Labels::new(out.bytes(), placement.input_shape)?, steps::count_of(&array(&counts))))
    }

    fn count(&self, labels: &Labels, placement: &Placement) -> Result<VoxelCount> {
        let (data, counts) = (buffer(labels), Buffer::new(steps::COUNT_BYTES));
        steps::count(&self.0, &span(&data, labels), placement, counts.span())?;
        Ok(steps::count_of(&array(&counts)))
    }

    fn write(&self, labels: &Labels, output: Output<'_>) -> Result<()> {
        let (data, out) = (buffer(labels), Buffer::new(output.bytes.len()));
        steps::convert(&self.0, &span(&data, labels), output.label_type, out.span())?;
        output.bytes.copy_from_slice(out.bytes());
        Ok(())
    }
}
