//! Linear interpolation along each axis.

use triton_backend_api::Result;

use super::Crop;
use crate::cpu::allocate;
use crate::cpu::intensity::Voxel;
use crate::volume::Shape3;

/// Two neighbouring voxels along an axis and their weights. Both are read even with a weight of 0, so NaN spreads.
#[derive(Clone, Copy, Default)]
struct Tap {
    low: usize,
    high: usize,
    low_weight: f32,
    high_weight: f32,
}

pub(super) fn interpolate<V: Voxel>(
    crop: &Crop<'_, V>,
    size: Shape3,
    align_corners: bool,
    out: &mut [f32],
) -> Result<()> {
    let table = |axis: usize| {
        let (from, to) = (crop.size.dims()[axis], size.dims()[axis]);
        let mut taps = allocate::filled(to, Tap::default(), "the weights of an axis")?;
        for (at, tap) in taps.iter_mut().enumerate() {
            *tap = tap_for(from, at, to, align_corners);
        }
        Ok(taps)
    };
    let (rows, columns, depths) = (table(0)?, table(1)?, table(2)?);
    let mut places = out.iter_mut();
    for row in &rows {
        for column in &columns {
            for (depth, place) in depths.iter().zip(&mut places) {
                *place = mean_of_8(crop, row, column, depth);
            }
        }
    }
    Ok(())
}

fn mean_of_8<V: Voxel>(crop: &Crop<'_, V>, row: &Tap, column: &Tap, depth: &Tap) -> f32 {
    let mut sum = 0.0;
    for (i, row_weight) in [(row.low, row.low_weight), (row.high, row.high_weight)] {
        for (j, column_weight) in [(column.low, column.low_weight), (column.high, column.high_weight)] {
            let weight = row_weight * column_weight;
            sum += weight * depth.low_weight * crop.value([i, j, depth.low]);
            sum += weight * depth.high_weight * crop.value([i, j, depth.high]);
        }
    }
    sum
}

/// Where an output voxel lies on the input's axis, in float32; product and subtraction are rounded once, as in the
/// reference: at an exact hit one rounding more or less is another pair of voxels.
fn tap_for(from: usize, at: usize, to: usize, align_corners: bool) -> Tap {
    if from == to {
        return Tap { low: at, high: at, low_weight: 1.0, high_weight: 0.0 };
    }
    let position = if align_corners {
        let ratio = if to > 1 { (from - 1) as f32 / (to - 1) as f32 } else { 0.0 };
        at as f32 * ratio
    } else {
        let ratio = from as f32 / to as f32;
        (at as f32 + 0.5).mul_add(ratio, -0.5).max(0.0)
    };
    let low = (position.floor() as usize).min(from - 1);
    let high = (low + 1).min(from - 1);
    let high_weight = (position - low as f32).clamp(0.0, 1.0);
    Tap { low, high, low_weight: 1.0 - high_weight, high_weight }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(from: usize, to: usize, align_corners: bool) -> Vec<f32> {
        let position = |tap: Tap| tap.low as f32 * tap.low_weight + tap.high as f32 * tap.high_weight;
        (0..to).map(|at| position(tap_for(from, at, to, align_corners))).collect()
    }

    #[test]
    fn corners_stay_where_they_are_or_faces_do() {
        assert_eq!(positions(5, 3, true), [0.0, 2.0, 4.0]);
        assert_eq!(positions(3, 5, true), [0.0, 0.5, 1.0, 1.5, 2.0]);
        assert_eq!(positions(2, 4, false), [0.0, 0.25, 0.75, 1.0]);
        assert_eq!(positions(4, 2, false), [0.5, 2.5]);
        assert_eq!(positions(3, 1, true), [0.0]);
        assert_eq!(positions(3, 1, false), [1.0]);
        assert_eq!(positions(1, 3, false), [0.0; 3]);
        assert_eq!(positions(1, 3, true), [0.0; 3]);
    }

    #[test]
    fn taps_stay_inside_for_large_axes() {
        for (from, to) in [(1 << 33, 7), (3, 1 << 20), ((1 << 31) + 1, 1 << 20)] {
            for align_corners in [false, true] {
                for at in (0..to).step_by(to / 7 + 1).chain([to - 1]) {
                    let tap = tap_for(from, at, to, align_corners);
                    assert!(
                        tap.low <= tap.high && tap.high < from && tap.low_weight + tap.high_weight == 1.0
                    );
                }
            }
        }
    }
}
