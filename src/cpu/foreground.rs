//! CropForeground's box, looked for from the outside inwards: what lies inside is left to the resize to read.
//!
//! Scaling never decreases with the intensity, so "above 0 after scaling" is "at least some threshold" before it: one
//! comparison a voxel.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rayon::prelude::*;

use super::buffers::{Input, Voxels};
use super::intensity::{Voxel, scaled};
use super::reference;
use super::simd::{self, Kernel};
use crate::config::Scale;
use crate::volume::{BoundingBox, Foreground, Shape3};

pub(super) fn find(input: &Input<'_>, scale: &Scale) -> Foreground {
    let Some(threshold) = threshold(scale) else { return reference::foreground::find(input, scale) };
    match input.voxels() {
        Voxels::Fp32(voxels) => find_in(voxels, input.shape(), threshold),
        Voxels::Int16(voxels) => find_in(voxels, input.shape(), threshold),
    }
}

/// The lowest intensity that is foreground, NaN where none is; `None` where scaling is not monotonic in float32.
pub(crate) fn threshold(scale: &Scale) -> Option<f32> {
    let positive = |factor: f32| factor.is_normal() && factor > 0.0;
    if !positive(scale.a_span) || !scale.b.is_none_or(|(span, min)| positive(span) && min.is_finite()) {
        return None;
    }
    let is_foreground = |value: f32| scaled(scale, value) > 0.0;
    if !is_foreground(f32::INFINITY) {
        return Some(f32::NAN);
    }
    // Bisection over all floats in their order, with an end that is foreground.
    let (mut below, mut from) = (order(f32::NEG_INFINITY) - 1, order(f32::INFINITY));
    while below + 1 < from {
        let middle = below + (from - below) / 2;
        if is_foreground(in_order(middle)) { from = middle } else { below = middle }
    }
    Some(in_order(from))
}

/// The place of a float among all floats in ascending order; -0 stands just below 0.
fn order(value: f32) -> i64 {
    let bits = value.to_bits() as i32;
    i64::from(if bits < 0 { i32::MIN - bits - 1 } else { bits })
}

fn in_order(place: i64) -> f32 {
    let bits = place as i32;
    f32::from_bits((if bits < 0 { i32::MIN - bits - 1 } else { bits }) as u32)
}

fn find_in<V: Voxel>(voxels: &[V], shape: Shape3, threshold: f32) -> Foreground {
    let [planes, columns, depth] = shape.dims();
    let plane = |i: usize| &voxels[i * columns * depth..(i + 1) * columns * depth];
    let found = Found {
        is_odd: AtomicBool::new(false),
        rows: Bounds::nowhere(columns),
        voxels: Bounds::nowhere(depth),
    };
    // Planes from both ends, until one has foreground.
    let has_foreground = |i: &usize| simd::run(Outside { plane: plane(*i), depth, threshold, found: &found });
    let first = (0..planes).into_par_iter().find_first(has_foreground);
    let last = first.and_then(|first| (first..planes).into_par_iter().find_last(has_foreground));
    let mut bounding_box = None;
    if let (Some(first), Some(last)) = (first, last) {
        let look = |i| simd::run(Inside { plane: plane(i), depth, threshold, found: &found });
        (first..=last).into_par_iter().for_each(look);
        let (rows, voxels) = (found.rows.get(), found.voxels.get());
        bounding_box = Some(BoundingBox {
            start: [first, rows.start, voxels.start].map(|at| at as i64),
            end: [last + 1, rows.end, voxels.end].map(|at| at as i64),
        });
    }
    let (nan_count, inf_count) =
        if found.is_odd.into_inner() { count_not_finite_in(voxels, depth) } else { (0, 0) };
    Foreground { bounding_box, nan_count, inf_count }
}

/// What the threads have found so far.
struct Found {
    /// Whether a voxel that was looked at is no finite number.
    is_odd: AtomicBool,
    rows: Bounds,
    voxels: Bounds,
}

/// From the first to past the last place with foreground along an axis. It only grows, so whoever looks outside of what it
/// was at any time looks at all that lies outside of it in the end.
struct Bounds {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl Bounds {
    fn nowhere(size: usize) -> Self {
        Self { start: AtomicUsize::new(size), end: AtomicUsize::new(0) }
    }

    fn get(&self) -> Range<usize> {
        self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed)
    }

    fn include(&self, first: usize, last: usize) {
        self.start.fetch_min(first, Ordering::Relaxed);
        self.end.fetch_max(last + 1, Ordering::Relaxed);
    }
}

impl Found {
    /// Whether there is foreground among these voxels.
    #[inline(always)]
    fn look<V: Voxel>(&self, voxels: &[V], threshold: f32) -> bool {
        // As wide as the voxels, so that the comparisons need not be packed.
        let (mut found, mut odd) = (0, 0);
        for voxel in voxels {
            let value = voxel.value();
            found |= u32::from(value >= threshold);
            odd |= u32::from(!value.is_finite());
        }
        if odd > 0 {
            self.is_odd.store(true, Ordering::Relaxed);
        }
        found > 0
    }
}

/// Looks for foreground in a plane, no further than the first row that has some.
struct Outside<'a, V> {
    plane: &'a [V],
    depth: usize,
    threshold: f32,
    found: &'a Found,
}

impl<V: Voxel> Kernel for Outside<'_, V> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Self { plane, depth, threshold, found } = self;
        plane.chunks_exact(depth).any(|row| found.look(row, threshold))
    }
}

/// Looks in a plane at what could widen the bounds: rows from both sides, and the ends of the rows between them.
struct Inside<'a, V> {
    plane: &'a [V],
    depth: usize,
    threshold: f32,
    found: &'a Found,
}

impl<V: Voxel> Kernel for Inside<'_, V> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { plane, depth, threshold, found } = self;
        let row = |j: usize| &plane[j * depth..(j + 1) * depth];
        let columns = plane.len() / depth;
        let (mut start, mut end) = (0, columns);
        while start < found.rows.get().start.min(columns) {
            if found.look(row(start), threshold) {
                found.rows.include(start, start);
                break;
            }
            start += 1;
        }
        while end > found.rows.get().end.max(start) {
            if found.look(row(end - 1), threshold) {
                found.rows.include(end - 1, end - 1);
                break;
            }
            end -= 1;
        }
        let is_foreground = |voxel: &V| voxel.value() >= threshold;
        for row in plane[start * depth..end * depth].chunks_exact(depth) {
            let known = found.voxels.get();
            if known == (0..depth) {
                break;
            }
            let (before, after) = (&row[..known.start], &row[known.end.max(known.start)..]);
            if found.look(before, threshold) | found.look(after, threshold)
                && let (Some(first), Some(last)) =
                    (row.iter().position(is_foreground), row.iter().rposition(is_foreground))
            {
                found.voxels.include(first, last);
            }
        }
    }
}

/// How many voxels are NaN, and how many infinite.
pub(super) fn count_not_finite(input: &Input<'_>) -> (u64, u64) {
    let depth = input.shape().dims()[2];
    match input.voxels() {
        Voxels::Fp32(voxels) => count_not_finite_in(voxels, depth),
        Voxels::Int16(_) => (0, 0),
    }
}

fn count_not_finite_in<V: Voxel>(voxels: &[V], depth: usize) -> (u64, u64) {
    let count = |row: &[V]| {
        let of = |is_odd: fn(f32) -> bool| row.iter().filter(|voxel| is_odd(voxel.value())).count() as u64;
        (of(f32::is_nan), of(f32::is_infinite))
    };
    voxels.par_chunks(depth).map(count).reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_floats_counts_them_all() {
        let floats =
            [f32::NEG_INFINITY, f32::MIN, -1.0, -f32::MIN_POSITIVE, -0.0, 0.0, 1e-45, 2.0, f32::INFINITY];
        assert!(floats.windows(2).all(|pair| order(pair[0]) < order(pair[1])));
        assert!(floats.iter().all(|value| in_order(order(*value)).to_bits() == value.to_bits()));
        assert_eq!(order(0.0) - order(-0.0), 1);
    }

    #[test]
    fn the_threshold_parts_background_from_foreground() {
        let unit =
            Scale { a_min: -57.0, a_span: 221.0, b: Some((1.0, 0.0)), lowest: Some(0.0), highest: None };
        let always = Scale { b: Some((1.0, 0.5)), lowest: Some(0.5), ..unit };
        let never = Scale { b: Some((1.0, -3.0)), lowest: None, highest: Some(-2.0), ..unit };
        let shifted = Scale { a_min: 1e-3, a_span: 3e-5, b: Some((7.0, -2.5)), lowest: None, highest: None };
        for scale in [unit, always, never, shifted] {
            let threshold = threshold(&scale).unwrap();
            let near = (-3..=3).map(|step| {
                in_order(
                    order(threshold)
                        .saturating_add(step)
                        .clamp(order(f32::NEG_INFINITY), order(f32::INFINITY)),
                )
            });
            let others = [f32::NEG_INFINITY, -1000.0, -57.0, -0.0, 0.0, 1e-3, 164.0, f32::INFINITY, f32::NAN];
            for value in near.chain(others) {
                assert_eq!(value >= threshold, scaled(&scale, value) > 0.0, "{value} {scale:?}");
            }
        }
        assert_eq!(super::threshold(&Scale { a_span: 0.0, ..unit }), None);
    }
}
