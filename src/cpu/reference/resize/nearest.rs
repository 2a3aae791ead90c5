//! One voxel of the crop for each voxel of the result.
//!
//! Which one is decided in float32, as the reference does it: at an exact tie one rounding more or less is another voxel.

use triton_backend_api::Result;

use super::Crop;
use crate::cpu::allocate;
use crate::cpu::intensity::Voxel;
use crate::volume::Shape3;

/// Takes for each output index `at` the voxel `source(input size, at, output size)` along each axis.
pub(super) fn sample<V: Voxel>(
    crop: &Crop<'_, V>,
    size: Shape3,
    out: &mut [f32],
    source: impl Fn(usize, usize, usize) -> usize,
) -> Result<()> {
    let table = |axis: usize| {
        let (from, to) = (crop.size.dims()[axis], size.dims()[axis]);
        let mut indices = allocate::filled(to, 0, "the indices of an axis")?;
        for (at, index) in indices.iter_mut().enumerate() {
            *index = source(from, at, to);
        }
        Ok(indices)
    };
    let (rows, columns, depths) = (table(0)?, table(1)?, table(2)?);
    let mut places = out.iter_mut();
    for &i in &rows {
        for &j in &columns {
            for (&k, place) in depths.iter().zip(&mut places) {
                *place = crop.value([i, j, k]);
            }
        }
    }
    Ok(())
}

/// `nearest`: the output voxel's lower corner, rounded down. Sizes that are equal or doubled are exact.
pub(super) fn floored(from: usize, at: usize, to: usize) -> usize {
    if from == to {
        at
    } else if Some(to) == from.checked_mul(2) {
        at / 2
    } else {
        let ratio = from as f32 / to as f32;
        limited(at as f32 * ratio, from)
    }
}

/// `nearest-exact`: the voxel under the output voxel's centre. The product and the subtraction are rounded once.
pub(super) fn centred(from: usize, at: usize, to: usize) -> usize {
    let ratio = from as f32 / to as f32;
    let centre = (at as f32 + 0.5).mul_add(ratio, -0.5).max(0.0);
    limited(centre + 0.5, from)
}

fn limited(position: f32, from: usize) -> usize {
    (position.floor() as usize).min(from - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(source: impl Fn(usize, usize, usize) -> usize, from: usize, to: usize) -> Vec<usize> {
        (0..to).map(|at| source(from, at, to)).collect()
    }

    #[test]
    fn corners_and_centres_choose_differently() {
        assert_eq!(indices(floored, 5, 3), [0, 1, 3]);
        assert_eq!(indices(centred, 5, 3), [0, 2, 4]);
        assert_eq!(indices(floored, 2, 4), [0, 0, 1, 1]);
        assert_eq!(indices(centred, 2, 4), [0, 0, 1, 1]);
        assert_eq!(indices(floored, 3, 1), [0]);
        assert_eq!(indices(centred, 3, 1), [1]);
    }

    #[test]
    fn indices_stay_inside_for_large_axes() {
        for (from, to) in [(1 << 33, 7), (3, 1 << 20), ((1 << 31) + 1, 1 << 20)] {
            for source in [floored, centred] {
                let mut last = 0;
                for at in (0..to).step_by(to / 7 + 1).chain([to - 1]) {
                    let index = source(from, at, to);
                    assert!(index < from && index >= last, "{from} {to} {at} {index}");
                    last = index;
                }
            }
        }
    }
}
