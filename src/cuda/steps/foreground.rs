//! Bounding box.

use std::ops::Range;

use triton_backend_api::Result;

use super::{InputSpan, blocks, dims, launch, scaling};
use crate::config::Scale;
use crate::cuda::kernels::Kernel;
use crate::cuda::kernels::arguments::ForegroundArguments;
use crate::cuda::queue::{DeviceSpan, Queue};
use crate::volume::{BoundingBox, Foreground, VoxelType};

/// The size of what the search finds: 8 u64.
pub const FOUND_BYTES: usize = 64;

/// Begins a search: nothing is found yet.
pub fn reset_foreground(queue: &impl Queue, found: DeviceSpan<'_>) -> Result<()> {
    queue.fill(found.part(0, 24)?, 0xFF)?;
    queue.fill(found.part(24, FOUND_BYTES - 24)?, 0)
}

/// Looks at the voxels `range` (in C order) of a volume and adds what it finds to `found`. A search may be several
/// ranges, one after the other, so that it can begin while the rest of the volume is still being copied.
pub fn find_foreground(
    queue: &impl Queue,
    input: &InputSpan<'_>,
    range: Range<usize>,
    scale: &Scale,
    found: DeviceSpan<'_>,
) -> Result<()> {
    input.check()?;
    found.check("the place for a bounding box", FOUND_BYTES, 8)?;
    let end = range.end.min(input.shape.count());
    let count = end.saturating_sub(range.start);
    if count == 0 {
        return Ok(());
    }
    let arguments = ForegroundArguments {
        voxels: input.voxels.address(),
        found: found.address(),
        first: range.start as u64,
        end: end as u64,
        dims: dims(input.shape),
        scaling: scaling(scale),
    };
    let (kernel, each) = match input.voxel_type {
        VoxelType::Fp32 => (Kernel::ForegroundFp32, 4),
        VoxelType::Int16 => (Kernel::ForegroundInt16, 8),
    };
    let geometry = blocks(queue, count, each * queue.block() as usize);
    // SAFETY: the volume and `found` are as long as the kernel takes them to be, which has been checked.
    unsafe { launch(queue, kernel, &geometry, &arguments) }
}

/// What a finished search has found, as it lies in memory.
pub fn foreground_of(found: &[u8; FOUND_BYTES]) -> Foreground {
    let mut words = [0; FOUND_BYTES / 8];
    for (word, bytes) in words.iter_mut().zip(found.as_chunks().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    let [i, j, k, i_end, j_end, k_end, nan_count, inf_count] = words;
    let bounding_box = (i_end > 0).then(|| BoundingBox {
        start: [i, j, k].map(|at| at as i64),
        end: [i_end, j_end, k_end].map(|at| at as i64),
    });
    Foreground { bounding_box, nan_count, inf_count }
}
