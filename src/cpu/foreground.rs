//! CropForeground's box in one pass over the input.
//!
//! Scaling never decreases with the intensity, so "above 0 after scaling" is "at least some threshold" before it: one
//! comparison a voxel.

use rayon::prelude::*;

use super::buffers::{Input, Voxels};
use super::intensity::{Voxel, scaled};
use super::reference;
use super::simd::{self, Kernel};
use crate::config::Scale;
use crate::volume::{AXES, BoundingBox, Foreground, Shape3};

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
    let [_, columns, depth] = shape.dims();
    voxels
        .par_chunks_exact(columns * depth)
        .enumerate()
        .map(|(i, plane)| simd::run(Plane { plane, i, depth, threshold }))
        .reduce(|| Foreground { bounding_box: None, nan_count: 0, inf_count: 0 }, merge)
}

fn merge(a: Foreground, b: Foreground) -> Foreground {
    let bounding_box = match (a.bounding_box, b.bounding_box) {
        (Some(a), Some(b)) => Some(BoundingBox {
            start: AXES.map(|axis| a.start[axis].min(b.start[axis])),
            end: AXES.map(|axis| a.end[axis].max(b.end[axis])),
        }),
        (a, b) => a.or(b),
    };
    Foreground { bounding_box, nan_count: a.nan_count + b.nan_count, inf_count: a.inf_count + b.inf_count }
}

/// One plane of the input, its rows one after the other.
struct Plane<'a, V> {
    plane: &'a [V],
    i: usize,
    depth: usize,
    threshold: f32,
}

impl<V: Voxel> Kernel for Plane<'_, V> {
    type Output = Foreground;

    #[inline(always)]
    fn run(self) -> Foreground {
        let Self { plane, i, depth, threshold } = self;
        let (mut rows, mut first, mut end) = (None::<(usize, usize)>, depth, 0);
        let (mut nan_count, mut inf_count) = (0u64, 0u64);
        for (j, row) in plane.chunks_exact(depth).enumerate() {
            let (mut found, mut finite) = (false, true);
            for voxel in row {
                let value = voxel.value();
                found |= value >= threshold;
                finite &= value.abs() < f32::INFINITY;
            }
            if !finite {
                nan_count += row.iter().filter(|voxel| voxel.value().is_nan()).count() as u64;
                inf_count += row.iter().filter(|voxel| voxel.value().is_infinite()).count() as u64;
            }
            if found {
                rows = Some((rows.map_or(j, |(from, _)| from), j + 1));
                // Only what could widen the box is looked at again.
                let is_foreground = |voxel: &V| voxel.value() >= threshold;
                first = row[..first].iter().position(is_foreground).unwrap_or(first);
                end = row[end..].iter().rposition(is_foreground).map_or(end, |at| end + at + 1);
            }
        }
        let bounding_box = rows.map(|(from, to)| BoundingBox {
            start: [i as i64, from as i64, first as i64],
            end: [i as i64 + 1, to as i64, end as i64],
        });
        Foreground { bounding_box, nan_count, inf_count }
    }
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
