//! The class of the largest score, straight from the network's reply.

use half::f16;
use rayon::prelude::*;
use triton_backend_api::{HostPool, Result};

use super::buffers::{Labels, Logits, Scores};
use super::simd::{self, Kernel};
use crate::pipeline::Argmax;

/// Voxels that are compared at a time: their best scores stay in the nearest cache.
const BLOCK: usize = 1024;
/// Voxels that a thread takes at a time.
const CHUNK: usize = 64 * BLOCK;

pub(super) fn argmax(logits: &Logits<'_>, pool: &HostPool) -> Result<Argmax<Labels>> {
    let mut labels = Labels::take(pool, logits.shape(), (logits.classes() - 1) as u8)?;
    let nan_count = match logits.scores() {
        Scores::Fp32(scores) => argmax_of(scores, logits.classes(), labels.data_mut()),
        Scores::Fp16(scores) => argmax_of(scores, logits.classes(), labels.data_mut()),
    };
    Ok(Argmax { labels, nan_count })
}

/// A score as it lies in memory.
trait Score: Copy + Sync {
    fn value(self) -> f32;
}

/// FP32.
impl Score for [u8; 4] {
    #[inline(always)]
    fn value(self) -> f32 {
        f32::from_ne_bytes(self)
    }
}

/// FP16.
impl Score for [u8; 2] {
    #[inline(always)]
    fn value(self) -> f32 {
        f16::from_ne_bytes(self).to_f32()
    }
}

fn argmax_of<S: Score>(scores: &[S], classes: usize, labels: &mut [u8]) -> u64 {
    let voxels = labels.len();
    let of_chunk = |(chunk, labels): (usize, &mut [u8])| {
        simd::run(Chunk { scores, classes, voxels, first: chunk * CHUNK, labels })
    };
    labels.par_chunks_mut(CHUNK).enumerate().map(of_chunk).sum()
}

/// A piece of the label map that begins at voxel `first`.
struct Chunk<'a, S> {
    scores: &'a [S],
    classes: usize,
    voxels: usize,
    first: usize,
    labels: &'a mut [u8],
}

impl<S: Score> Kernel for Chunk<'_, S> {
    type Output = u64;

    #[inline(always)]
    fn run(self) -> u64 {
        let mut nan_count = 0;
        let mut best = [0.0; BLOCK];
        for (block, labels) in self.labels.chunks_mut(BLOCK).enumerate() {
            let first = self.first + block * BLOCK;
            let count = labels.len();
            let of_class = |class| &self.scores[class * self.voxels + first..][..count];
            let best = &mut best[..count];
            // Nearly always there is no NaN, and then the comparison is simple.
            let mut any_nan = false;
            for class in 0..self.classes {
                any_nan |= compare::<S, false>(of_class(class), class, best, labels) > 0;
            }
            if any_nan {
                for class in 0..self.classes {
                    nan_count += compare::<S, true>(of_class(class), class, best, labels);
                }
            }
        }
        nan_count
    }
}

/// Puts a class where its score wins against the best so far, and counts its scores that are NaN. With NAN that counts as
/// largest; without, the labels hold only where none is.
#[inline(always)]
fn compare<S: Score, const NAN: bool>(
    scores: &[S],
    class: usize,
    best: &mut [f32],
    labels: &mut [u8],
) -> u64 {
    let mut nan = 0u32;
    if class == 0 {
        labels.fill(0);
        for (best, score) in best.iter_mut().zip(scores) {
            *best = score.value();
            nan += u32::from(best.is_nan());
        }
        return u64::from(nan);
    }
    for ((best, label), score) in best.iter_mut().zip(labels).zip(scores) {
        let score = score.value();
        nan += u32::from(score.is_nan());
        // The first of equals stays.
        let wins = (score > *best) | NAN & score.is_nan() & !best.is_nan();
        // The larger one, and not "if it wins": stores that depend on a comparison are slow.
        *best = if NAN && (score.is_nan() | best.is_nan()) { f32::NAN } else { best.max(score) };
        *label = if wins { class as u8 } else { *label };
    }
    u64::from(nan)
}
