//! Which voxel along an axis a resampled voxel takes: `from` voxels become `to`, and this is the one at `at`.
//!
//! The first two are decided in float32, as the reference does it: at an exact tie one rounding more or less is another
//! voxel.

/// `nearest`: the output voxel's lower corner, rounded down. Sizes that are equal or doubled are exact.
pub fn floored(from: usize, at: usize, to: usize) -> usize {
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
pub fn centred(from: usize, at: usize, to: usize) -> usize {
    let ratio = from as f32 / to as f32;
    let centre = (at as f32 + 0.5).mul_add(ratio, -0.5).max(0.0);
    limited(centre + 0.5, from)
}

/// The voxel nearest to the output voxel's centre where the centres of the first and of the last voxels coincide
/// (`align_corners`); of two that are equally near, the later one.
pub fn aligned(from: usize, at: usize, to: usize) -> usize {
    let steps = to.saturating_sub(1).max(1) as u128;
    let doubled = 2 * at as u128 * (from - 1) as u128;
    ((doubled + steps) / (2 * steps)) as usize
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
    fn aligned_corners_meet() {
        assert_eq!(indices(aligned, 5, 3), [0, 2, 4]);
        assert_eq!(indices(aligned, 3, 5), [0, 1, 1, 2, 2]);
        assert_eq!(indices(aligned, 3, 1), [0]);
        assert_eq!(indices(aligned, 1, 3), [0, 0, 0]);
        assert_eq!(indices(aligned, 7, 7), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn indices_stay_inside_for_large_axes() {
        for (from, to) in [(1 << 33, 7), (3, 1 << 20), ((1 << 31) + 1, 1 << 20)] {
            for source in [floored, centred, aligned] {
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
