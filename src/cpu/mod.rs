//! The steps on the host, one file a step. [`reference`] holds each step's plainest form.

mod allocate;
mod argmax;
mod bits;
#[cfg(test)]
mod both;
mod buffers;
mod components;
mod contour;
mod foreground;
mod intensity;
mod native;
mod output;
#[cfg(test)]
mod properties;
pub mod reference;
mod resize;
mod simd;
mod threads;

use triton_backend_api::{HostMemory, HostPool, Result};

pub use buffers::{Input, Labels, Logits, Output, Tensor};
pub use threads::Threads;
#[cfg(feature = "cuda")]
pub(crate) use {
    foreground::threshold as foreground_threshold, resize::area::is_separable as area_is_separable,
};

use crate::config::{KeepLargest, Scale};
#[cfg(feature = "cuda")]
use crate::cuda::Copier;
use crate::native::{Placement, VoxelCount};
use crate::pipeline::{Argmax, CropScaleResize, Device};
use crate::volume::{Foreground, Shape3};
use components::Scratch;

/// The steps on any device whose buffers are the host's.
pub trait HostDevice:
    for<'a> Device<
        Input<'a> = Input<'a>,
        Tensor = Tensor,
        Logits<'a> = Logits<'a>,
        Labels = Labels,
        Output<'a> = Output<'a>,
    >
{
}

impl<D> HostDevice for D where
    D: for<'a> Device<
            Input<'a> = Input<'a>,
            Tensor = Tensor,
            Logits<'a> = Logits<'a>,
            Labels = Labels,
            Output<'a> = Output<'a>,
        >
{
}

/// The host: its threads, and the memory that it keeps between requests.
pub struct Cpu {
    threads: Threads,
    pool: HostPool,
    scratch: Scratch,
    #[cfg(feature = "cuda")]
    copier: Copier,
}

impl Cpu {
    /// Works on these threads, and keeps the buffers of `volumes` volumes at a time for the next ones.
    pub fn new(threads: Threads, volumes: usize) -> Self {
        // Each has a resized volume, a label map and a contour, and perhaps a gathered input.
        Self {
            threads,
            pool: HostPool::new(4 * volumes),
            scratch: Scratch::new(volumes),
            #[cfg(feature = "cuda")]
            copier: Copier::new(volumes),
        }
    }

    /// Keeps the native mask and contour of so many volumes too.
    pub fn keep_native(&self, volumes: usize) {
        self.pool.keep_more(2 * volumes);
    }

    /// Memory of undefined contents; `what` names its use in the error.
    pub fn take(&self, byte_size: usize, what: &str) -> Result<HostMemory> {
        self.pool.take(byte_size).map_err(|e| e.context(what))
    }

    /// Copies tensors that lie on a GPU.
    #[cfg(feature = "cuda")]
    pub fn copier(&self) -> &Copier {
        &self.copier
    }
}

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
        Ok(self.threads.run(|| foreground::find(input, scale)))
    }

    fn crop_scale_resize(&self, input: &Input<'_>, plan: &CropScaleResize) -> Result<Tensor> {
        self.threads.run(|| resize::crop_scale_resize(input, plan, &self.pool))
    }

    fn count_not_finite(&self, input: &Input<'_>, found: Foreground, resized: &Tensor) -> Result<Foreground> {
        // The search counts everything or has met none, and what it did not look at was resized.
        if resized.is_of_finite || found.nan_count + found.inf_count > 0 {
            return Ok(found);
        }
        let (nan_count, inf_count) = self.threads.run(|| foreground::count_not_finite(input));
        Ok(Foreground { nan_count, inf_count, ..found })
    }

    fn argmax(&self, logits: &Logits<'_>) -> Result<Argmax<Labels>> {
        self.threads.run(|| argmax::argmax(logits, &self.pool))
    }

    fn keep_largest(&self, labels: Labels, keep: &KeepLargest) -> Result<Labels> {
        self.threads.run(|| components::keep_largest(labels, keep, &self.threads, &self.scratch))
    }

    fn contour(&self, labels: &Labels) -> Result<Labels> {
        self.threads.run(|| contour::contour(labels, &self.pool))
    }

    fn restore(&self, labels: &Labels, placement: &Placement) -> Result<(Labels, VoxelCount)> {
        // Counting takes a small part of the time, on the network's grid.
        Ok((
            self.threads.run(|| native::restore(labels, placement, &self.pool))?,
            self.count(labels, placement)?,
        ))
    }

    fn count(&self, labels: &Labels, placement: &Placement) -> Result<VoxelCount> {
        self.threads.run(|| native::count(labels, placement))
    }

    fn write(&self, labels: &Labels, output: Output<'_>) -> Result<()> {
        self.threads.run(|| output::write(labels, output))
    }
}
