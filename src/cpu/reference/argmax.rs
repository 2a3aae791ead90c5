//! The class of the largest score.

use half::f16;
use triton_backend_api::{HostPool, Result};

use crate::cpu::buffers::{Labels, Logits, Scores};
use crate::pipeline::Argmax;

pub(in crate::cpu) fn argmax(logits: &Logits<'_>, pool: &HostPool) -> Result<Argmax<Labels>> {
    match logits.scores() {
        Scores::Fp32(scores) => argmax_of(logits, pool, |at| f32::from_ne_bytes(scores[at])),
        Scores::Fp16(scores) => argmax_of(logits, pool, |at| f16::from_ne_bytes(scores[at]).to_f32()),
    }
}

fn argmax_of(logits: &Logits<'_>, pool: &HostPool, score: impl Fn(usize) -> f32) -> Result<Argmax<Labels>> {
    let voxels = logits.shape().count();
    let mut labels = Labels::take(pool, logits.shape(), (logits.classes() - 1) as u8)?;
    let mut nan_count = 0;
    for (voxel, label) in labels.data_mut().iter_mut().enumerate() {
        let mut best = score(voxel);
        *label = 0;
        nan_count += u64::from(best.is_nan());
        for class in 1..logits.classes() {
            let candidate = score(class * voxels + voxel);
            nan_count += u64::from(candidate.is_nan());
            // NaN counts as largest, and the first of equals stays.
            if candidate > best || (candidate.is_nan() && !best.is_nan()) {
                best = candidate;
                *label = class as u8;
            }
        }
    }
    Ok(Argmax { labels, nan_count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::both;
    use crate::volume::{LogitType, Shape3};

    const NAN: f32 = f32::NAN;

    fn labels(scores: &[&[f32]]) -> (Vec<u8>, u64) {
        let shape = Shape3::new([1, 1, scores[0].len() as i64]).unwrap();
        let of = |logit_type, bytes: Vec<u8>| {
            let found = both::argmax(&Logits::new(&bytes, logit_type, scores.len(), shape).unwrap());
            (found.labels.data().to_vec(), found.nan_count)
        };
        let all = || scores.iter().copied().flatten();
        let fp32 = of(LogitType::Fp32, all().flat_map(|score| score.to_ne_bytes()).collect());
        let fp16 = of(LogitType::Fp16, all().flat_map(|&score| f16::from_f32(score).to_ne_bytes()).collect());
        assert_eq!(fp32, fp16);
        fp32
    }

    #[test]
    fn the_largest_score_wins_and_the_lowest_class_among_equals() {
        let found = labels(&[&[0.0, 1.0, 1.0, -2.0], &[1.0, 0.0, 1.0, -1.0], &[1.0, 2.0, 1.0, -1.0]]);
        assert_eq!(found, (vec![1, 2, 0, 1], 0));
    }

    #[test]
    fn nan_counts_as_largest_and_the_first_nan_wins() {
        let found = labels(&[&[NAN, 1.0, NAN, f32::INFINITY], &[9.0, NAN, NAN, NAN]]);
        assert_eq!(found, (vec![0, 1, 0, 1], 5));
    }

    #[test]
    fn classes_beyond_the_labels_are_refused() {
        let shape = Shape3::new([1, 1, 1]).unwrap();
        assert!(Logits::new(&[0; 256 * 4], LogitType::Fp32, 256, shape).is_ok());
        assert!(Logits::new(&[0; 257 * 4], LogitType::Fp32, 257, shape).is_err());
        assert!(Logits::new(&[0; 8], LogitType::Fp32, 1, shape).is_err());
    }
}
