//! Labels on the grid of the input.

use triton_backend_api::Result;

use super::{LabelsSpan, blocks, check_axes, dims, launch};
use crate::cuda::kernels::Kernel;
use crate::cuda::kernels::arguments::NativeArguments;
use crate::cuda::queue::{DeviceSpan, Queue};
use crate::native::{Placement, VoxelCount};

/// The size of the counts: 2 u64.
pub const COUNT_BYTES: usize = 16;

/// Rows of a thread in one turn.
const ROWS: usize = 16;

/// Writes the labels of the input's voxels to `out`, and counts as [`count`] does.
pub fn restore(
    queue: &impl Queue,
    labels: &LabelsSpan<'_>,
    placement: &Placement,
    out: DeviceSpan<'_>,
    counts: DeviceSpan<'_>,
) -> Result<()> {
    out.check("labels on the grid of the input", placement.input_shape.count(), 1)?;
    run(queue, labels, placement, Some(out), counts)
}

/// Counts the labels above 0, on their own grid and on that of the input; see [`count_of`]. `counts` has [`COUNT_BYTES`]
/// bytes at a multiple of 8.
pub fn count(
    queue: &impl Queue,
    labels: &LabelsSpan<'_>,
    placement: &Placement,
    counts: DeviceSpan<'_>,
) -> Result<()> {
    run(queue, labels, placement, None, counts)
}

/// The finished counts, as they lie in memory.
pub fn count_of(counts: &[u8; COUNT_BYTES]) -> VoxelCount {
    let [grid, native] = [0, 8].map(|at| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&counts[at..at + 8]);
        u64::from_ne_bytes(bytes)
    });
    VoxelCount { grid, native }
}

/// One look at each label and one at each voxel of the input, whose label goes to the output if there is one. Without an output
/// the box is all that is looked at: outside it there are no labels.
fn run(
    queue: &impl Queue,
    labels: &LabelsSpan<'_>,
    placement: &Placement,
    out: Option<DeviceSpan<'_>>,
    counts: DeviceSpan<'_>,
) -> Result<()> {
    let size = placement.crop.size()?;
    let (mut start, mut image) = (placement.crop.start, placement.input_shape.dims());
    if out.is_none() {
        for (axis, size) in image.iter_mut().enumerate() {
            let first = start[axis].max(0);
            let end = placement.crop.end[axis].min(*size as i64);
            *size = (end - first).max(0) as usize;
            start[axis] -= first;
        }
    }
    labels.check("a label map")?;
    check_axes(labels.shape, size)?;
    counts.check("the place for counts", COUNT_BYTES, 8)?;
    queue.fill(counts.part(0, COUNT_BYTES)?, 0)?;
    let arguments = NativeArguments {
        labels: labels.data.address(),
        out: out.map_or(0, DeviceSpan::address),
        grid_count: counts.address(),
        native_count: counts.address() + 8,
        grid: dims(labels.shape),
        crop_start: start,
        crop_size: dims(size),
        image: image.map(|size| size as u64),
        align_corners: u32::from(placement.align_corners),
    };
    let [rows, columns, depth] = image;
    let pieces = rows * columns.div_ceil(ROWS) * depth;
    let of_grid = blocks(queue, labels.shape.count(), 4 * queue.block() as usize);
    let of_input = blocks(queue, pieces, queue.block() as usize);
    // SAFETY: labels, counts and output are as long as the kernels take them to be, which has been checked.
    unsafe {
        launch(queue, Kernel::NativeCountGrid, &of_grid, &arguments)?;
        launch(queue, Kernel::NativeRestore, &of_input, &arguments)
    }
}
