//! The largest connected components.

use triton_backend_api::{Error, Result};

use super::{LabelsSpan, blocks, dims, launch};
use crate::config::KeepLargest;
use crate::cuda::kernels::Kernel;
use crate::cuda::kernels::arguments::ComponentsArguments;
use crate::cuda::queue::{DeviceSpan, Queue};
use crate::volume::Shape3;

/// The bits of a set of labels that has label 1 alone.
pub(super) const LABEL_1: [u32; 8] = [2, 0, 0, 0, 0, 0, 0, 0];

/// Bits of a digit in the selection; the kernel's histogram has one counter for each value.
const DIGIT_BITS: u32 = 12;

/// The size of the kernel's `Selection`.
const SELECTION_BYTES: usize = 48 + (8 << DIGIT_BITS);

/// Words of 32 voxels: each row begins a new one.
pub(super) fn words(shape: Shape3) -> usize {
    let [rows, columns, depth] = shape.dims();
    rows * columns * depth.div_ceil(32)
}

/// Runs of voxels there can be: every other voxel of a row.
fn runs(shape: Shape3) -> usize {
    let [rows, columns, depth] = shape.dims();
    rows * columns * depth.div_ceil(2)
}

/// The width of the kernels' indices and sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indices {
    /// For volumes of fewer than 2^32 - 1 voxels: the largest value is spared.
    Bits32,
    /// For all volumes.
    Bits64,
}

impl Indices {
    /// The narrowest for a volume.
    pub fn of(shape: Shape3) -> Self {
        if shape.count() < u32::MAX as usize { Self::Bits32 } else { Self::Bits64 }
    }

    fn size(self) -> usize {
        match self {
            Self::Bits32 => 4,
            Self::Bits64 => 8,
        }
    }
}

/// The parts of the working memory, in its order: bits, parents, sizes, roots, selection.
fn parts(shape: Shape3, width: Indices) -> [usize; 5] {
    let indices = runs(shape) * width.size();
    [words(shape) * 4, indices, indices, indices, SELECTION_BYTES].map(|bytes| bytes.next_multiple_of(256))
}

/// Bytes of working memory.
pub fn keep_largest_scratch(shape: Shape3, width: Indices) -> usize {
    parts(shape, width).iter().sum()
}

/// Sets to 0, in place, what is not among the largest connected components. `scratch` begins at a multiple of 8; the width
/// is [`Indices::of`] the volume, or wider.
pub fn keep_largest(
    queue: &impl Queue,
    labels: &LabelsSpan<'_>,
    keep: &KeepLargest,
    scratch: DeviceSpan<'_>,
    width: Indices,
) -> Result<()> {
    labels.check("a label map")?;
    let byte_size = keep_largest_scratch(labels.shape, width);
    scratch.check("the working memory of the components", byte_size, 8)?;
    if width == Indices::Bits32 && Indices::of(labels.shape) != width {
        return Err(Error::internal(format!("components of {} voxels with 32-bit indices", labels.shape)));
    }
    // An absent label is an empty union: it costs launches and changes nothing.
    let selected: Vec<u8> = match &keep.applied_labels {
        Some(applied) => applied
            .iter()
            .filter_map(|label| u8::try_from(*label).ok())
            .filter(|label| *label <= labels.highest)
            .collect(),
        None => (1..=labels.highest).collect(),
    };
    if selected.is_empty() {
        return Ok(());
    }
    let unions: Vec<&[u8]> = if keep.independent { selected.chunks(1).collect() } else { vec![&selected] };
    unions.into_iter().try_for_each(|union| keep_largest_of(queue, labels, union, keep, scratch, width))
}

/// One union of labels.
fn keep_largest_of(
    queue: &impl Queue,
    labels: &LabelsSpan<'_>,
    union: &[u8],
    keep: &KeepLargest,
    scratch: DeviceSpan<'_>,
    width: Indices,
) -> Result<()> {
    let shape = labels.shape;
    let mut offset = 0;
    let [bits, parents, sizes, roots, selection] = parts(shape, width).map(|bytes| {
        offset += bytes;
        scratch.part(offset - bytes, bytes)
    });
    let (bits, selection) = (bits?, selection?);
    let mut selected = [0; 8];
    for label in union {
        selected[usize::from(label / 32)] |= 1 << (label % 32);
    }
    let mut arguments = ComponentsArguments {
        labels: labels.data.address(),
        bits: bits.address(),
        parents: parents?.address(),
        sizes: sizes?.address(),
        roots: roots?.address(),
        selection: selection.address(),
        dims: dims(shape),
        words: shape.dims()[2].div_ceil(32) as u64,
        keep: keep.num_components as u64,
        selected,
        connectivity: keep.connectivity as u32,
        digit: 0,
    };
    let of_width = |kernel_32, kernel_64| match width {
        Indices::Bits32 => kernel_32,
        Indices::Bits64 => kernel_64,
    };
    let geometry = blocks(queue, words(shape), queue.block() as usize);
    queue.fill(selection, 0)?;
    pack(queue, labels, selected, bits)?;
    let passes = [
        of_width(Kernel::ComponentsLink32, Kernel::ComponentsLink64),
        of_width(Kernel::ComponentsMerge32, Kernel::ComponentsMerge64),
        of_width(Kernel::ComponentsCount32, Kernel::ComponentsCount64),
    ];
    for kernel in passes {
        // SAFETY: the labels and all parts of the scratch are as long as the kernel takes them to be.
        unsafe { launch(queue, kernel, &geometry, &arguments)? };
    }
    for digit in digits(shape)? {
        arguments.digit = digit;
        let kernel = of_width(Kernel::ComponentsSelect32, Kernel::ComponentsSelect64);
        let geometry = blocks(queue, runs(shape), 64 * queue.block() as usize);
        // SAFETY: as above.
        unsafe { launch(queue, kernel, &geometry, &arguments)? };
    }
    let kernel = of_width(Kernel::ComponentsClear32, Kernel::ComponentsClear64);
    // SAFETY: as above.
    unsafe { launch(queue, kernel, &geometry, &arguments) }
}

/// The digits of a component's rank, from the highest: those of its size in the upper half of the numbers, then those of
/// its root. Only as many as the volume can need.
fn digits(shape: Shape3) -> Result<Vec<u32>> {
    let digits_of = |largest: usize| (usize::BITS - largest.leading_zeros()).div_ceil(DIGIT_BITS);
    let (size, root) = (digits_of(shape.count()), digits_of(runs(shape)));
    if size > 16 || root > 16 {
        return Err(Error::internal(format!("components of {shape} voxels have too many digits")));
    }
    Ok((0..size).rev().map(|digit| 16 + digit).chain((0..root).rev()).collect())
}

/// Writes the bits of the selected labels.
pub(super) fn pack(
    queue: &impl Queue,
    labels: &LabelsSpan<'_>,
    selected: [u32; 8],
    bits: DeviceSpan<'_>,
) -> Result<()> {
    let shape = labels.shape;
    bits.check("the bits of a label map", words(shape) * 4, 4)?;
    let arguments = ComponentsArguments {
        labels: labels.data.address(),
        bits: bits.address(),
        parents: 0,
        sizes: 0,
        roots: 0,
        selection: 0,
        dims: dims(shape),
        words: shape.dims()[2].div_ceil(32) as u64,
        keep: 0,
        selected,
        connectivity: 0,
        digit: 0,
    };
    let geometry = blocks(queue, words(shape), queue.block() as usize);
    // SAFETY: labels and bits are as long as the kernel takes them to be; it uses nothing else.
    unsafe { launch(queue, Kernel::ComponentsPack, &geometry, &arguments) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_as_wide_as_the_volume_needs() {
        let width = |dims| Indices::of(Shape3::new(dims).unwrap());
        let most = i64::from(u32::MAX);
        assert_eq!(width([224, 224, 224]), Indices::Bits32);
        assert_eq!(width([1, 1, most - 1]), Indices::Bits32);
        assert_eq!(width([1, 1, most]), Indices::Bits64);
        assert_eq!(width([2, 1, most]), Indices::Bits64);
    }
}
