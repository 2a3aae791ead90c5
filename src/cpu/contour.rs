//! LabelToContour of a mask by erosion: a voxel of the mask is contour unless all 26 neighbours are set.

use rayon::prelude::*;
use triton_backend_api::{HostPool, Result};

use super::bits::{self, SPREAD};
use super::buffers::Labels;
use super::simd::{self, Kernel};
use super::{allocate, reference};

pub(super) fn contour(labels: &Labels, pool: &HostPool) -> Result<Labels> {
    if labels.highest() > 1 {
        return reference::contour::contour(labels, pool);
    }
    let [_, columns, depth] = labels.shape().dims();
    let (plane, words) = (columns * depth, bits::words(depth));
    // For each voxel, whether it and its 8 neighbours in the plane are set.
    let mut flat = allocate::filled(labels.shape().dims()[0] * columns * words, 0u64, "the contour")?;
    let planes = flat.par_chunks_exact_mut(columns * words).zip(labels.data().par_chunks_exact(plane));
    planes.for_each(|(flat, labels)| simd::run(Flat { labels, depth, flat }));

    let mut contour = Labels::take(pool, labels.shape(), 1)?;
    let planes = contour.data_mut().par_chunks_exact_mut(plane).zip(labels.data().par_chunks_exact(plane));
    planes.enumerate().for_each(|(i, (contour, labels))| {
        let at = |i: usize| flat.get(i.checked_mul(columns * words)?..)?.get(..columns * words);
        // A plane at the border has no inside.
        match (i.checked_sub(1).and_then(at), at(i), at(i + 1)) {
            (Some(above), Some(here), Some(below)) => {
                simd::run(Rim { labels, around: [above, here, below], depth, contour });
            }
            _ => contour.copy_from_slice(labels),
        }
    });
    Ok(contour)
}

/// Erodes one plane with the 8 neighbours in it.
struct Flat<'a> {
    labels: &'a [u8],
    depth: usize,
    flat: &'a mut [u64],
}

impl Kernel for Flat<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (depth, words) = (self.depth, bits::words(self.depth));
        let flat = self.flat;
        // Along the rows, in place.
        for (row, packed) in self.labels.chunks_exact(depth).zip(flat.chunks_exact_mut(words)) {
            bits::pack(row, packed);
            let mut before = 0;
            for at in 0..words {
                let here = packed[at];
                let after = packed.get(at + 1).copied().unwrap_or(0);
                packed[at] = here & (here << 1 | before >> 63) & (here >> 1 | after << 63);
                before = here;
            }
        }
        // Over the rows: the row before is kept as it was, since it is overwritten first.
        let rows = flat.len() / words;
        for at in 0..words {
            let mut before = 0;
            for row in 0..rows {
                let here = flat[row * words + at];
                let after = flat.get((row + 1) * words + at).copied().unwrap_or(0);
                flat[row * words + at] = before & here & after;
                before = here;
            }
        }
    }
}

/// Takes what lies inside three eroded planes out of the middle one.
struct Rim<'a> {
    labels: &'a [u8],
    around: [&'a [u64]; 3],
    depth: usize,
    contour: &'a mut [u8],
}

impl Kernel for Rim<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { labels, around: [above, here, below], depth, contour } = self;
        let words = bits::words(depth);
        let rows = labels.chunks_exact(depth).zip(contour.chunks_exact_mut(depth)).enumerate();
        for (row, (labels, contour)) in rows {
            for (word, (labels, contour)) in labels.chunks(64).zip(contour.chunks_mut(64)).enumerate() {
                let at = row * words + word;
                let inside = (above[at] & here[at] & below[at]).to_le_bytes();
                let (eights, rest) = contour.as_chunks_mut::<8>();
                let (labels, labels_rest) = labels.as_chunks::<8>();
                for ((contour, label), inside) in eights.iter_mut().zip(labels).zip(inside) {
                    let inside = u64::from_ne_bytes(SPREAD[usize::from(inside)]);
                    *contour = (u64::from_ne_bytes(*label) & !inside).to_ne_bytes();
                }
                let inside = SPREAD[usize::from(inside[eights.len() % 8])];
                for ((contour, label), inside) in rest.iter_mut().zip(labels_rest).zip(inside) {
                    *contour = label & !inside;
                }
            }
        }
    }
}
