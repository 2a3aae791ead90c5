//! Contour.

use triton_backend_api::Result;

use super::components::{LABEL_1, pack, words};
use super::{LabelsSpan, blocks, dims, launch};
use crate::cuda::kernels::Kernel;
use crate::cuda::kernels::arguments::ContourArguments;
use crate::cuda::queue::{DeviceSpan, Queue};
use crate::volume::Shape3;

/// Planes that a thread of `contour_labels` takes in one turn.
const PLANES: usize = 16;

/// Bytes of working memory.
pub fn contour_scratch(shape: Shape3) -> usize {
    words(shape) * size_of::<u32>()
}

/// Writes 1 where 26 times the label exceeds the sum of the 26 labels around it, else 0. `out` is not `labels`.
pub fn contour(
    queue: &impl Queue,
    labels: &LabelsSpan<'_>,
    out: DeviceSpan<'_>,
    scratch: DeviceSpan<'_>,
) -> Result<()> {
    let shape = labels.shape;
    let [_, columns, depth] = shape.dims();
    labels.check("a label map")?;
    out.check("a contour", shape.count(), 1)?;
    scratch.check("the working memory of the contour", contour_scratch(shape), 4)?;
    let arguments = ContourArguments {
        labels: labels.data.address(),
        out: out.address(),
        bits: scratch.address(),
        dims: dims(shape),
        words: depth.div_ceil(32) as u64,
    };
    let (kernel, geometry) = if labels.highest <= 1 {
        pack(queue, labels, LABEL_1, scratch)?;
        (Kernel::ContourMask, blocks(queue, words(shape), queue.block() as usize))
    } else {
        let columns_of_planes = columns * depth * shape.dims()[0].div_ceil(PLANES);
        (Kernel::ContourLabels, blocks(queue, columns_of_planes, queue.block() as usize))
    };
    // SAFETY: labels, output and bits are as long as the kernel takes them to be, which has been checked.
    unsafe { launch(queue, kernel, &geometry, &arguments) }
}
