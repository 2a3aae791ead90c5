//! Argmax.

use triton_backend_api::{Error, Result};

use super::{LogitsSpan, blocks, launch};
use crate::cuda::kernels::Kernel;
use crate::cuda::kernels::arguments::ArgmaxArguments;
use crate::cuda::queue::{DeviceSpan, Queue};
use crate::volume::LogitType;

/// Voxels of one thread in one turn.
const AT_A_TIME: usize = 4;

/// Writes the winning class of each voxel to `labels`, and the number of scores that are NaN, an u64, to `nan_count`.
pub fn argmax(
    queue: &impl Queue,
    logits: &LogitsSpan<'_>,
    labels: DeviceSpan<'_>,
    nan_count: DeviceSpan<'_>,
) -> Result<()> {
    let (voxels, size) = (logits.shape.count(), logits.logit_type.size());
    if !(1..=256).contains(&logits.classes) {
        return Err(Error::internal(format!("scores of {} classes; accepted are 1 to 256", logits.classes)));
    }
    let bytes = voxels.saturating_mul(logits.classes).saturating_mul(size);
    logits.scores.check("a volume of scores", bytes, size as u64)?;
    labels.check("a label map", voxels, 1)?;
    nan_count.check("the place for a count", 8, 8)?;
    queue.fill(nan_count.part(0, 8)?, 0)?;
    let arguments = ArgmaxArguments {
        scores: logits.scores.address(),
        labels: labels.address(),
        nan_count: nan_count.address(),
        voxels: voxels as u64,
        classes: logits.classes as u32,
    };
    let kernel = match logits.logit_type {
        LogitType::Fp32 => Kernel::ArgmaxFp32,
        LogitType::Fp16 => Kernel::ArgmaxFp16,
    };
    let geometry = blocks(queue, voxels, AT_A_TIME * queue.block() as usize);
    // SAFETY: scores, labels and count are as long as the kernel takes them to be, which has been checked.
    unsafe { launch(queue, kernel, &geometry, &arguments) }
}
