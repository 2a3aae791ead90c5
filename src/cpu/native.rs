//! Labels on the grid of the input, row by row: a mask is mostly empty rows, and those cost no more than filling them.

use rayon::prelude::*;
use triton_backend_api::{HostPool, Result};

use super::buffers::Labels;
use super::simd::{self, Kernel};
use super::{allocate, bits};
use crate::native::{Axis, Placement, VoxelCount};

pub(super) fn restore(labels: &Labels, placement: &Placement, pool: &HostPool) -> Result<Labels> {
    let [_, grid_columns, grid_depth] = labels.shape().dims();
    let [_, width, depth] = placement.input_shape.dims();
    let [rows, columns, depths] = placement.axes(labels.shape())?;
    let mut native = Labels::take(pool, placement.input_shape, labels.highest())?;
    native.data_mut().par_chunks_exact_mut(width * depth).enumerate().for_each(|(i, plane)| {
        let source = i.checked_sub(rows.first).and_then(|at| rows.labels.get(at));
        let Some(row) = source else { return plane.fill(0) };
        let size = grid_columns * grid_depth;
        let labels = &labels.data()[row * size..(row + 1) * size];
        simd::run(Plane { labels, grid_depth, columns: &columns, depths: &depths, plane, depth });
    });
    Ok(native)
}

/// One plane of the input's grid, from one plane of labels.
struct Plane<'a> {
    labels: &'a [u8],
    grid_depth: usize,
    columns: &'a Axis,
    depths: &'a Axis,
    plane: &'a mut [u8],
    depth: usize,
}

impl Kernel for Plane<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { labels, grid_depth, columns, depths, plane, depth } = self;
        for (j, row) in plane.chunks_exact_mut(depth).enumerate() {
            row.fill(0);
            let source = j.checked_sub(columns.first).and_then(|at| columns.labels.get(at));
            let Some(column) = source else { continue };
            let labels = &labels[column * grid_depth..(column + 1) * grid_depth];
            if is_empty(labels) {
                continue;
            }
            for (place, &label) in row[depths.first..].iter_mut().zip(&depths.labels) {
                *place = labels[label];
            }
        }
    }
}

pub(super) fn count(labels: &Labels, placement: &Placement) -> Result<VoxelCount> {
    let [grid_rows, grid_columns, grid_depth] = labels.shape().dims();
    let [rows, columns, depths] = placement.axes(labels.shape())?;
    let (rows, columns) = (rows.weights(grid_rows)?, columns.weights(grid_columns)?);
    let depths = digits(&depths.weights(grid_depth)?)?;
    let is_set: [u8; 256] = std::array::from_fn(|label| u8::from(label > 0));
    let table = (labels.highest() > 1).then_some(&is_set);
    let planes = labels.data().par_chunks_exact(grid_columns * grid_depth).zip(rows);
    let counts = planes.map(|(labels, weight)| {
        let counted = Counted { labels, table, depth: grid_depth, columns: &columns, depths: &depths };
        let VoxelCount { grid, native } = simd::run(counted)?;
        Ok(VoxelCount { grid, native: weight * native })
    });
    counts.try_reduce(VoxelCount::default, |a, b| {
        Ok(VoxelCount { grid: a.grid + b.grid, native: a.native + b.native })
    })
}

/// Weights digit by digit, the lowest binary digit first: a row of bits each.
fn digits(weights: &[u64]) -> Result<Vec<Vec<u64>>> {
    let largest = weights.iter().copied().max().unwrap_or(0);
    let digit = |digit| {
        let mut row = allocate::filled(bits::words(weights.len()), 0, "a table for an axis")?;
        for (at, weight) in weights.iter().enumerate() {
            row[at / 64] |= (weight >> digit & 1) << (at % 64);
        }
        Ok(row)
    };
    (0..u64::BITS - largest.leading_zeros()).map(digit).collect()
}

/// One plane of labels, and how many voxels of the input's plane take each of them.
struct Counted<'a> {
    labels: &'a [u8],
    /// What is above 0, where labels may be above 1.
    table: Option<&'a [u8; 256]>,
    depth: usize,
    columns: &'a [u64],
    /// The weights along the rows, by [`digits`].
    depths: &'a [Vec<u64>],
}

impl Kernel for Counted<'_> {
    type Output = Result<VoxelCount>;

    #[inline(always)]
    fn run(self) -> Result<VoxelCount> {
        let mut count = VoxelCount::default();
        let mut set = allocate::filled(bits::words(self.depth), 0u64, "a row of labels")?;
        for (row, weight) in self.labels.chunks_exact(self.depth).zip(self.columns) {
            bits::pack_selected(row, self.table, &mut set);
            count.grid += set.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            for (digit, taken) in self.depths.iter().enumerate() {
                let both = set.iter().zip(taken).map(|(set, taken)| u64::from((set & taken).count_ones()));
                count.native += (weight * both.sum::<u64>()) << digit;
            }
        }
        Ok(count)
    }
}

/// Whether a row is all background. Without a branch in the loop, so that it runs on whole vectors.
#[inline(always)]
fn is_empty(row: &[u8]) -> bool {
    row.iter().fold(0, |any, label| any | label) == 0
}
