//! The steps in their plainest form: what the faster ones are compared with, and what they fall back on.

pub(super) mod argmax;
pub(super) mod components;
pub(super) mod contour;
pub(super) mod foreground;
pub(super) mod native;
pub(super) mod output;
pub(super) mod resize;

use triton_backend_api::{HostPool, Result};

use super::buffers::{Input, Labels, Logits, Output, Tensor};
use crate::config::{KeepLargest, Scale};
use crate::native::{Placement, VoxelCount};
use crate::pipeline::{Argmax, CropScaleResize, Device};
use crate::volume::{Foreground, Shape3};

/// The host, one voxel after the other.
pub struct Reference(HostPool);

impl Default for Reference {
    fn default() -> Self {
        Self(HostPool::new(0))
    }
}

impl Device for Reference {
    type Input<'a> = Input<'a>;
    type Tensor = Tensor;
    type Logits<'a> = Logits<'a>;
    type Labels = Labels;
    type Output<'a> = Output<'a>;

    fn shape(&self, input: &Input<'_>) -> Shape3 {
        input.shape()
    }

    fn find_foreground(&self, input: &Input<'_>, scale: &Scale) -> Result<Foreground> {
        Ok(foreground::find(input, scale))
    }

    fn crop_scale_resize(&self, input: &Input<'_>, plan: &CropScaleResize) -> Result<Tensor> {
        resize::crop_scale_resize(input, plan, &self.0)
    }

    fn argmax(&self, logits: &Logits<'_>) -> Result<Argmax<Labels>> {
        argmax::argmax(logits, &self.0)
    }

    fn keep_largest(&self, labels: Labels, keep: &KeepLargest) -> Result<Labels> {
        components::keep_largest(labels, keep)
    }

    fn contour(&self, labels: &Labels) -> Result<Labels> {
        contour::contour(labels, &self.0)
    }

    fn restore(&self, labels: &Labels, placement: &Placement) -> Result<(Labels, VoxelCount)> {
        Ok((native::restore(labels, placement, &self.0)?, self.count(labels, placement)?))
    }

    fn count(&self, labels: &Labels, placement: &Placement) -> Result<VoxelCount> {
        native::count(labels, placement, &self.0)
    }

    fn write(&self, labels: &Labels, output: Output<'_>) -> Result<()> {
        output::write(labels, output)
    }
}
