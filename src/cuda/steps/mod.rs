//! The steps as launches: which kernel, how many blocks, how much shared memory, in which order. Sizes and alignments are
//! checked before anything is queued.

mod argmax;
mod components;
mod contour;
mod convert;
mod foreground;
mod native;
mod resize;

use std::marker::PhantomData;

use triton_backend_api::{Error, Result};

pub use argmax::argmax;
pub use components::{Indices, keep_largest, keep_largest_scratch};
pub use contour::{contour, contour_scratch};
pub use convert::convert;
pub use foreground::{FOUND_BYTES, find_foreground, foreground_of, reset_foreground};
pub use native::{COUNT_BYTES, count, count_of, restore};
pub use resize::{crop_scale_resize, resize_scratch};

use super::kernels::Kernel;
use super::kernels::arguments::Scaling;
use super::queue::{DeviceSpan, Launch, Queue};
use crate::config::Scale;
use crate::volume::{LogitType, Shape3, VoxelType};

/// One volume of the input on the device, in C order.
#[derive(Clone, Copy, Debug)]
pub struct InputSpan<'a> {
    /// Its voxels, at a multiple of an element's size.
    pub voxels: DeviceSpan<'a>,
    /// Their type.
    pub voxel_type: VoxelType,
    /// Its size.
    pub shape: Shape3,
}

impl InputSpan<'_> {
    fn check(&self) -> Result<()> {
        let size = self.voxel_type.size();
        self.voxels.check("an input volume", self.shape.count() * size, size as u64)
    }
}

/// The network's reply for one volume on the device, the classes one after the other.
#[derive(Clone, Copy, Debug)]
pub struct LogitsSpan<'a> {
    /// Its scores, at a multiple of an element's size.
    pub scores: DeviceSpan<'a>,
    /// Their type.
    pub logit_type: LogitType,
    /// 1 to 256.
    pub classes: usize,
    /// The size of the volume of each class.
    pub shape: Shape3,
}

/// A label map on the device: one byte for each voxel in C order.
#[derive(Clone, Copy, Debug)]
pub struct LabelsSpan<'a> {
    /// The labels.
    pub data: DeviceSpan<'a>,
    /// Its size.
    pub shape: Shape3,
    /// No label is above this one.
    pub highest: u8,
}

impl LabelsSpan<'_> {
    fn check(&self, what: &str) -> Result<()> {
        self.data.check(what, self.shape.count(), 1)
    }
}

/// Blocks of one launch.
struct Geometry {
    grid: u32,
    block: u32,
    shared_bytes: u32,
}

/// Blocks of the queue's own size for `items` pieces of work, `each` of them to a block in one turn. No more blocks than
/// the device can hold at a time: they take several turns.
fn blocks(queue: &impl Queue, items: usize, each: usize) -> Geometry {
    let at_once = queue.multiprocessors().max(1) * (2048 / queue.block().max(32));
    let wanted = items.div_ceil(each.max(1)).clamp(1, at_once as usize);
    Geometry { grid: wanted as u32, block: queue.block(), shared_bytes: 0 }
}

/// # Safety
/// `arguments` are those of the kernel, and the memory that they name is large enough.
unsafe fn launch<A>(queue: &impl Queue, kernel: Kernel, geometry: &Geometry, arguments: &A) -> Result<()> {
    let launch = Launch {
        kernel,
        grid: geometry.grid,
        block: geometry.block,
        shared_bytes: geometry.shared_bytes,
        arguments: (&raw const *arguments).cast(),
        argument_bytes: size_of::<A>(),
        owner: PhantomData,
    };
    // SAFETY: the caller's promise.
    unsafe { queue.launch(&launch) }
}

fn scaling(scale: &Scale) -> Scaling {
    let threshold = crate::cpu::foreground_threshold(scale);
    let (b_span, b_min) = scale.b.unwrap_or_default();
    Scaling {
        a_min: scale.a_min,
        a_span: scale.a_span,
        b_span,
        b_min,
        lowest: scale.lowest.unwrap_or_default(),
        highest: scale.highest.unwrap_or_default(),
        present: u32::from(scale.b.is_some())
            | u32::from(scale.lowest.is_some()) << 1
            | u32::from(scale.highest.is_some()) << 2,
        threshold: threshold.unwrap_or_default(),
        has_threshold: u32::from(threshold.is_some()),
    }
}

fn dims(shape: Shape3) -> [u64; 3] {
    shape.dims().map(|size| size as u64)
}

/// INVALID_ARG unless indices along an axis can be multiplied with each other in 64 bits.
fn check_axes(from: Shape3, to: Shape3) -> Result<()> {
    let product = |axis: usize| (from.dims()[axis] as u64).checked_mul(to.dims()[axis] as u64);
    if (0..3).any(|axis| product(axis).is_none_or(|product| product >= 1 << 62)) {
        return Err(Error::invalid_arg(format!(
            "resizing {from} voxels to {to} on a GPU; accepted are sizes whose product is below 2^62 along each axis"
        )));
    }
    Ok(())
}
