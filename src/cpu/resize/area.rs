//! Area resizing as sums along one axis after the other.
//!
//! A window's sum is the sum over its rows, then over its planes, then over its voxels. The work goes through the image in
//! pieces of a few rows, plane after plane, so that the first two sums stay in the processor's nearest cache, and each
//! voxel is read from memory once.

use std::ops::Range;

use rayon::prelude::*;
use triton_backend_api::Result;

use crate::config::Scale;
use crate::cpu::allocate;
use crate::cpu::intensity::Voxel;
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
/// Columns of the result that are made at a time.
const COLUMNS_AT_A_TIME: usize = 16;
/// Sums of a row that are made at a time.
const BLOCK: usize = 4 * LANES;
const LANES: usize = 8;
/// How far ahead of the sums the processor is asked to read.
const ROWS_AHEAD: usize = 6;

/// Whether this way is the one to take: windows must be small, and several, and there must be something to resize.
pub(crate) fn is_separable(plan: &CropScaleResize) -> Result<bool> {
    let (from, to) = (plan.crop.size()?, plan.size);
    let largest = AXES.map(|axis| from.dims()[axis].div_ceil(to.dims()[axis]) + 1);
    let window = largest.iter().try_fold(1, |product: usize, size| product.checked_mul(*size));
    Ok(from != to && to.count() > 1 && window.is_some_and(|window| window <= LARGEST_WINDOW))
}

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
    intensity: Intensity,
    out: &mut [f32],
) -> Result<bool> {
    let (rows, columns, depths) =
        (windows(image, plan, 0)?, windows(image, plan, 1)?, windows(image, plan, 2)?);
    let depth_read = read(&depths);
    let axes = Axes { eights: eights(&depths, &depth_read), columns, depths, depth_read };
    let plane_size = axes.columns.len() * axes.depths.len();
    let groups = out.par_chunks_mut(plane_size * PLANES_AT_A_TIME).zip(rows.par_chunks(PLANES_AT_A_TIME));
    let means = groups.map(|(planes, rows)| {
        let sums = || allocate::filled(COLUMNS_AT_A_TIME * axes.depth_read.len(), 0.0, "sums of rows");
        let (mut of_plane, mut sums) = (sums()?, sums()?);
        let mut finite = true;
        for first in (0..axes.columns.len()).step_by(COLUMNS_AT_A_TIME) {
            finite &= simd::run(Piece {
                voxels,
                image,
                intensity,
                rows,
                axes: &axes,
                columns: first..axes.columns.len().min(first + COLUMNS_AT_A_TIME),
                of_plane: &mut of_plane,
                sums: &mut sums,
                planes,
            });
        }
        Ok(finite)
    });
    means.try_reduce(|| true, |a, b| Ok(a & b))
}

/// What is the same for all planes.
struct Axes {
    columns: Vec<Window>,
    depths: Vec<Window>,
    /// The windows along the depth eight at a time, where they are short.
    eights: Option<Vec<Eight>>,
    /// The part of the image that is read along the depth.
    depth_read: Range<usize>,
}

fn read(windows: &[Window]) -> Range<usize> {
    match windows {
        [first, .., last] => first.inside.start..last.inside.end,
        [only] => only.inside.clone(),
        [] => 0..0,
    }
}

/// Eight windows of one voxel or two, out of eight voxels in a row: where thick slices are resized to thin ones.
struct Eight {
    /// The first window.
    at: usize,
    /// The first of the eight voxels, in a row of sums.
    base: usize,
    taps: [Tap; 2],
    /// One over the number of voxels that each window covers.
    factors: [f32; 8],
}

/// For each window its first voxel, or its second.
#[derive(Default)]
struct Tap {
    /// Its place among the eight.
    places: [u32; 8],
    /// All bits where there is one, else none.
    bits: [u32; 8],
}

fn eights(depths: &[Window], read: &Range<usize>) -> Option<Vec<Eight>> {
    let (last, last_base) = (depths.len().checked_sub(8)?, read.len().checked_sub(8)?);
    // The last eight end with the row, and repeat what they share with those before.
    let starts = (0..depths.len()).step_by(8).map(|at| at.min(last));
    let eight = |at: usize| {
        let windows = depths[at..].first_chunk::<8>()?;
        let base = (windows[0].inside.start.checked_sub(read.start)?).min(last_base);
        let mut taps = [Tap::default(), Tap::default()];
        for (lane, window) in windows.iter().enumerate() {
            if window.inside.len() > taps.len() {
                return None;
            }
            for (tap, voxel) in taps.iter_mut().zip(window.inside.clone()) {
                let place = voxel - read.start - base;
                if place >= 8 {
                    return None;
                }
                (tap.places[lane], tap.bits[lane]) = (place as u32, u32::MAX);
            }
        }
        Some(Eight { at, base, taps, factors: windows.each_ref().map(|window| 1.0 / window.covered) })
    };
    starts.map(eight).collect()
}

/// ScaleIntensityRange as a shift, a factor and limits: few operations and no branches, so that a loop works on whole vectors.
/// It differs by the rounding of two operations.
#[derive(Clone, Copy)]
pub(super) struct Intensity {
    shift: f32,
    factor: f32,
    lowest: f32,
    highest: f32,
}

impl Intensity {
    /// None where the factor is not one that can be divided by.
    pub(super) fn new(scale: &Scale) -> Option<Self> {
        let (span, min) = scale.b.unwrap_or((1.0, 0.0));
        let factor = span / scale.a_span;
        let shift = scale.a_min - min / factor;
        (factor.is_normal() && shift.is_finite()).then_some(Self {
            shift,
            factor,
            lowest: scale.lowest.unwrap_or(f32::NEG_INFINITY),
            highest: scale.highest.unwrap_or(f32::INFINITY),
        })
    }

    #[inline(always)]
    fn of(self, value: f32) -> f32 {
        let value = (value - self.shift) * self.factor;
        let value = if value < self.lowest { self.lowest } else { value };
        if value > self.highest { self.highest } else { value }
    }
}

/// A few columns of consecutive planes of the result.
struct Piece<'a, V> {
    voxels: &'a [V],
    image: Shape3,
    intensity: Intensity,
    /// One window a plane.
    rows: &'a [Window],
    axes: &'a Axes,
    columns: Range<usize>,
    of_plane: &'a mut [f32],
    sums: &'a mut [f32],
    planes: &'a mut [f32],
}

impl<V: Voxel> Kernel for Piece<'_, V> {
    /// Whether every voxel that was read is a finite number.
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Self { voxels, image, intensity, rows, axes, columns, of_plane, sums, planes } = self;
        let (depth, thin) = (axes.depth_read.len(), axes.depths.len());
        let windows = &axes.columns[columns.clone()];
        let of_plane = &mut of_plane[..windows.len() * depth];
        let sums = &mut sums[..windows.len() * depth];
        let (mut met, mut summed) = ([0.0; LANES], None);
        for (plane, row) in planes.chunks_exact_mut(axes.columns.len() * thin).zip(rows) {
            // Over the rows of the window, with scaling, then over its planes. Padding adds 0: only voxels of the image are
            // summed. A window begins at most with the plane with which the one before it ended.
            if row.inside.is_empty() {
                sums.fill(0.0);
            }
            for i in row.inside.clone() {
                if summed.replace(i) != Some(i) {
                    for (at, window) in windows.iter().enumerate() {
                        let row = |j| &voxels[image.offset([i, j, axes.depth_read.start])..][..depth];
                        let (sums, rows) =
                            (&mut of_plane[at * depth..][..depth], window.inside.clone().map(row));
                        sum(sums, rows, intensity, &mut met);
                    }
                }
                if i == row.inside.start {
                    sums.copy_from_slice(of_plane);
                } else {
                    for (sum, part) in sums.iter_mut().zip(&*of_plane) {
                        *sum += part;
                    }
                }
            }
            // Over the voxels of the window.
            let out = &mut plane[columns.start * thin..columns.end * thin];
            for (at, (out, column)) in out.chunks_exact_mut(thin).zip(windows).enumerate() {
                let factor = 1.0 / (row.covered * column.covered);
                mean_along_depth(out, &sums[at * depth..][..depth], axes, factor);
            }
        }
        met.iter().all(|sum| sum.is_finite())
    }
}

/// The sums of rows of the input, scaled. Adds the voxels as they are to `met`, which stays finite only where all are.
#[inline(always)]
fn sum<'a, V: Voxel + 'a>(
    sums: &mut [f32],
    rows: impl Iterator<Item = &'a [V]> + Clone,
    intensity: Intensity,
    met: &mut [f32; LANES],
) {
    let Some(last) = sums.len().checked_sub(BLOCK) else {
        sums.fill(0.0);
        for row in rows {
            for (sum, voxel) in sums.iter_mut().zip(row) {
                met[0] += voxel.value();
                *sum += intensity.of(voxel.value());
            }
        }
        return;
    };
    // A block of sums stays in registers. The last one ends with the row, and repeats what it shares with the one before.
    for start in (0..sums.len()).step_by(BLOCK).map(|start| start.min(last)) {
        let mut block = [0.0; BLOCK];
        for row in rows.clone() {
            let Some(voxels) = row[start..].first_chunk::<BLOCK>() else { break };
            simd::prefetch(voxels, row.len() * ROWS_AHEAD);
            for lane in 0..LANES {
                let value = |part: usize| voxels[part * LANES + lane].value();
                met[lane] += (value(0) + value(1)) + (value(2) + value(3));
            }
            for (sum, voxel) in block.iter_mut().zip(voxels) {
                *sum += intensity.of(voxel.value());
            }
        }
        sums[start..start + BLOCK].copy_from_slice(&block);
    }
}

/// The means of one row of the result.
#[inline(always)]
fn mean_along_depth(out: &mut [f32], sums: &[f32], axes: &Axes, factor: f32) {
    let Some(eights) = &axes.eights else {
        for (out, window) in out.iter_mut().zip(&axes.depths) {
            let sums = &sums[window.inside.start - axes.depth_read.start..][..window.inside.len()];
            *out = sums.iter().sum::<f32>() * (factor / window.covered);
        }
        return;
    };
    for Eight { at, base, taps: [first, second], factors } in eights {
        let (Some(out), Some(sums)) = (out[*at..].first_chunk_mut::<8>(), sums[*base..].first_chunk()) else {
            break;
        };
        let (firsts, seconds) = (simd::pick(sums, &first.places), simd::pick(sums, &second.places));
        for lane in 0..8 {
            let first = f32::from_bits(firsts[lane].to_bits() & first.bits[lane]);
            let second = f32::from_bits(seconds[lane].to_bits() & second.bits[lane]);
            out[lane] = (first + second) * (factor * factors[lane]);
        }
    }
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
