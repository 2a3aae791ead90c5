//! Labels to the element type of an output.

use triton_backend_api::{Error, Result};

use super::{LabelsSpan, blocks, launch};
use crate::cuda::kernels::Kernel;
use crate::cuda::kernels::arguments::ConvertArguments;
use crate::cuda::queue::{DeviceSpan, Queue};
use crate::volume::LabelType;

/// Labels of one thread in one turn.
const AT_A_TIME: usize = 4;

/// Writes labels to `out`, which begins at a multiple of an element's size. BOOL is accepted where `highest` is at most 1,
/// since labels are not read back to look for others.
pub fn convert(
    queue: &impl Queue,
    labels: &LabelsSpan<'_>,
    label_type: LabelType,
    out: DeviceSpan<'_>,
) -> Result<()> {
    let count = labels.shape.count();
    labels.check("a label map")?;
    out.check("an output", count * label_type.size(), label_type.size() as u64)?;
    let kernel = match label_type {
        LabelType::Fp32 => Kernel::ConvertFp32,
        LabelType::Fp16 => Kernel::ConvertFp16,
        LabelType::Int32 => Kernel::ConvertInt32,
        LabelType::Int64 => Kernel::ConvertInt64,
        LabelType::Bool if labels.highest > 1 => {
            let highest = labels.highest;
            return Err(Error::invalid_arg(format!(
                "label {highest} does not fit BOOL; accepted are 0 and 1"
            )));
        }
        LabelType::Uint8 | LabelType::Bool => return queue.copy(labels.data.part(0, count)?, out),
    };
    let arguments =
        ConvertArguments { labels: labels.data.address(), out: out.address(), count: count as u64 };
    let geometry = blocks(queue, count, AT_A_TIME * queue.block() as usize);
    // SAFETY: labels and output are as long as the kernel takes them to be, which has been checked.
    unsafe { launch(queue, kernel, &geometry, &arguments) }
}
