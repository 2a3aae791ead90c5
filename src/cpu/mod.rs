//! The steps on the host, one file a step: each the plainest form of what it computes.

mod allocate;
mod argmax;
mod buffers;
mod components;
mod contour;
mod foreground;
mod intensity;
mod output;
mod resize;

use triton_backend_api::Result;

pub use buffers::{Input, Labels, Logits, Output, Tensor};

use crate::config::{KeepLargest, Scale};
use crate::pipeline::{Argmax, CropScaleResize, Device};
use crate::volume::{Foreground, Shape3};

/// The host. All buffers lie in its memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu;

impl Device for Cpu {
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
        resize::crop_scale_resize(input, plan)
    }

    fn argmax(&self, logits: &Logits<'_>) -> Result<Argmax<Labels>> {
        argmax::argmax(logits)
    }

    fn keep_largest(&self, labels: Labels, keep: &KeepLargest) -> Result<Labels> {
        components::keep_largest(labels, keep)
    }

    fn contour(&self, labels: &Labels) -> Result<Labels> {
        contour::contour(labels)
    }

    fn write(&self, labels: &Labels, output: Output<'_>) -> Result<()> {
        output::write(labels, output)
    }
}
