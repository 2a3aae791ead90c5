//! Area resizing as three passes of one axis each, fused plane by plane.
//!
//! A window's sum is the sum over its planes, then over its rows, then over its voxels. For each plane of the result the
//! first pass leaves one plane of sums, which stays in the processor's cache for the other two.

use std::ops::Range;

use rayon::prelude::*;
use triton_backend_api::Result;

use crate::config::Scale;
use crate::cpu::allocate;
use crate::cpu::intensity::{Voxel, ranged};
use crate::cpu::reference::resize::area::covered;
use crate::cpu::simd::{self, Kernel};
use crate::pipeline::CropScaleResize;
use crate::volume::{AXES, Shape3};

/// The largest window, in voxels, whose sum may be taken in another order than the reference's. The reference adds one
/// voxel after the other in float32, and over many equal ones its rounding has a bias: at 1,000 voxels the two differ by
/// more than the contract's 1e-5.
const LARGEST_WINDOW: usize = 400;

/// Planes of the result that one thread makes in a row; consecutive ones share planes of the input.
const PLANES_AT_A_TIME: usize = 8;

/// Whether this way is the one to take: windows must be small, and several, and there must be something to resize.
pub(crate) fn is_separable(plan: &CropScaleResize) -> Result<bool> {
    let (from, to) = (plan.crop.size()?, plan.size);
    let largest = AXES.map(|axis| from.dims()[axis].div_ceil(to.dims()[axis]) + 1);
    let window = largest.iter().try_fold(1, |product: usize, size| product.checked_mul(*size));
    Ok(from != to && to.count() > 1 && window.is_some_and(|window| window <= LARGEST_WINDOW))
}

/// The longest row of sums, with a 0 after it, whose places need no check; a power of two.
const LINE: usize = 4096;

/// What one index of the result covers along an axis.
#[derive(Clone)]
struct Window {
    /// How many voxels, padding included.
    covered: f32,
    /// Those inside the image, in the image's own indices.
    inside: Range<usize>,
}

/// Resizes, and says whether every voxel that it read is a finite number.
pub(super) fn mean<V: Voxel>(
    voxels: &[V],
    image: Shape3,
    plan: &CropScaleResize,
    out: &mut [f32],
) -> Result<bool> {
    let (rows, columns, depths) =
        (windows(image, plan, 0)?, windows(image, plan, 1)?, windows(image, plan, 2)?);
    let (columns_read, depth_read) = (read(&columns), read(&depths));
    let axes = Axes {
        factors: depths.iter().map(|window| 1.0 / window.covered).collect(),
        taps: taps(&depths, &depth_read),
        columns,
        depths,
        columns_read,
        depth_read,
    };
    // Multiplying by 1 and adding 0 changes nothing.
    let scale = Scale { b: plan.scale.b.filter(|b| *b != (1.0, 0.0)), ..plan.scale };
    let plane_size = axes.columns.len() * axes.depths.len();
    let planes = out.par_chunks_mut(plane_size * PLANES_AT_A_TIME).enumerate();
    let means = planes.map(|(group, planes)| {
        let mut sums =
            allocate::filled(axes.columns_read.len() * axes.depth_read.len(), 0.0, "a plane of sums")?;
        let mut line = allocate::filled(LINE.max(axes.depth_read.len()), 0.0, "a row of sums")?;
        let mut finite = true;
        for (plane, row) in planes.chunks_exact_mut(plane_size).zip(&rows[group * PLANES_AT_A_TIME..]) {
            let (sums, line) = (&mut sums, &mut line);
            finite &=
                simd::run(PlaneOfMeans { voxels, image, scale: &scale, row, axes: &axes, sums, line, plane });
        }
        Ok(finite)
    });
    means.try_reduce(|| true, |a, b| Ok(a & b))
}

/// What is the same for all planes.
struct Axes {
    columns: Vec<Window>,
    depths: Vec<Window>,
    /// One over the number of voxels that each window along the depth covers.
    factors: Vec<f32>,
    /// The places of each window along the depth in a row of sums, where no window has more than two.
    taps: Option<Vec<[u32; 2]>>,
    /// The part of the image that is read along the columns and along the depth.
    columns_read: Range<usize>,
    depth_read: Range<usize>,
}

fn read(windows: &[Window]) -> Range<usize> {
    match windows {
        [first, .., last] => first.inside.start..last.inside.end,
        [only] => only.inside.clone(),
        [] => 0..0,
    }
}

/// Where thick slices are resized to thin ones, windows have one voxel or two; a missing one is the 0 that stands after
/// a row of sums.
fn taps(depths: &[Window], read: &Range<usize>) -> Option<Vec<[u32; 2]>> {
    let tap = |window: &Window, at: usize| match at < window.inside.len() {
        true => (window.inside.start - read.start + at) as u32,
        false => read.len() as u32,
    };
    let short = depths.iter().all(|window| window.inside.len() <= 2) && read.len() < LINE;
    short.then(|| depths.iter().map(|window| [tap(window, 0), tap(window, 1)]).collect())
}

/// One plane of the result.
struct PlaneOfMeans<'a, V> {
    voxels: &'a [V],
    image: Shape3,
    scale: &'a Scale,
    row: &'a Window,
    axes: &'a Axes,
    sums: &'a mut [f32],
    line: &'a mut [f32],
    plane: &'a mut [f32],
}

impl<V: Voxel> Kernel for PlaneOfMeans<'_, V> {
    /// Whether every voxel that was read is a finite number.
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Self { voxels, image, scale, row, axes, sums, line, plane } = self;
        let mut finite = true;
        let inverse = scale.a_span.recip();
        let depth = axes.depth_read.len();
        // Over the planes of the window, with scaling. Padding adds 0: only voxels of the image are summed.
        for (sums, j) in sums.chunks_exact_mut(depth.max(1)).zip(axes.columns_read.clone()) {
            let mut rows =
                row.inside.clone().map(|i| &voxels[image.offset([i, j, axes.depth_read.start])..][..depth]);
            match rows.next() {
                Some(row) => finite &= add::<V, true>(sums, row, scale, inverse),
                None => sums.fill(0.0),
            }
            for row in rows {
                finite &= add::<V, false>(sums, row, scale, inverse);
            }
        }
        for (out, column) in plane.chunks_exact_mut(axes.depths.len()).zip(&axes.columns) {
            // Over the rows of the window.
            let mut rows =
                column.inside.clone().map(|j| &sums[(j - axes.columns_read.start) * depth..][..depth]);
            match rows.next() {
                Some(row) => line[..depth].copy_from_slice(row),
                None => line[..depth].fill(0.0),
            }
            for row in rows {
                for (sum, part) in line.iter_mut().zip(row) {
                    *sum += part;
                }
            }
            // Over the voxels of the window.
            let factor = 1.0 / (row.covered * column.covered);
            if let (Some(taps), Some(line)) = (&axes.taps, line.first_chunk::<LINE>()) {
                for ((out, taps), along_depth) in out.iter_mut().zip(taps).zip(&axes.factors) {
                    let [first, second] = taps.map(|at| line[at as usize % LINE]);
                    *out = (first + second) * (factor * along_depth);
                }
                continue;
            }
            for ((out, window), along_depth) in out.iter_mut().zip(&axes.depths).zip(&axes.factors) {
                let mut sum = 0.0;
                for part in &line[window.inside.start - axes.depth_read.start..][..window.inside.len()] {
                    sum += part;
                }
                *out = sum * (factor * along_depth);
            }
        }
        finite
    }
}

/// Sets or increases a row of sums by a row of the input, scaled. Says whether the row has only finite numbers. Dividing by
/// the span takes several times as long as multiplying by its inverse, and differs by the rounding of one operation.
#[inline(always)]
fn add<V: Voxel, const FIRST: bool>(sums: &mut [f32], row: &[V], scale: &Scale, inverse: f32) -> bool {
    let mut finite = true;
    for (sum, voxel) in sums.iter_mut().zip(row) {
        let value = voxel.value();
        finite &= value.abs() < f32::INFINITY;
        let value = ranged(scale, (value - scale.a_min) * inverse);
        *sum = if FIRST { value } else { *sum + value };
    }
    finite
}

fn windows(image: Shape3, plan: &CropScaleResize, axis: usize) -> Result<Vec<Window>> {
    let (from, to) = (plan.crop.size()?.dims()[axis], plan.size.dims()[axis]);
    let size = image.dims()[axis] as i64;
    let mut windows = allocate::filled(to, Window { covered: 0.0, inside: 0..0 }, "the windows of an axis")?;
    for (at, window) in windows.iter_mut().enumerate() {
        let covered = covered(from, at, to);
        let in_image = |index: usize| (plan.crop.start[axis] + index as i64).clamp(0, size) as usize;
        *window =
            Window { covered: covered.len() as f32, inside: in_image(covered.start)..in_image(covered.end) };
    }
    Ok(windows)
}
