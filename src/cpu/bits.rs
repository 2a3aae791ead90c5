//! Rows of bits: 64 voxels a word, the first voxel in the lowest bit.

use super::simd;

/// Words that hold a row of this many voxels.
pub(super) fn words(depth: usize) -> usize {
    depth.div_ceil(64)
}

/// Packs a row of bytes that are 0 or 1. Bits beyond the row are 0.
#[inline(always)]
pub(super) fn pack(row: &[u8], words: &mut [u64]) {
    for (word, bytes) in words.iter_mut().zip(row.chunks(64)) {
        let mut bits = 0;
        let (sixteens, rest) = bytes.as_chunks::<16>();
        for (at, sixteen) in sixteens.iter().enumerate() {
            bits |= u64::from(simd::lowest_bits(sixteen)) << (16 * at);
        }
        for (at, byte) in rest.iter().enumerate() {
            bits |= u64::from(*byte) << (16 * sixteens.len() + at);
        }
        *word = bits;
    }
}

/// Packs a row of labels by what `table` maps them to, 0 or 1; without a table they are 0 or 1.
#[inline(always)]
pub(super) fn pack_selected(row: &[u8], table: Option<&[u8; 256]>, words: &mut [u64]) {
    let Some(table) = table else { return pack(row, words) };
    for (word, labels) in words.iter_mut().zip(row.chunks(64)) {
        let mut mapped = [0; 64];
        for (mapped, label) in mapped.iter_mut().zip(labels) {
            *mapped = table[usize::from(*label)];
        }
        pack(&mapped[..labels.len()], std::slice::from_mut(word));
    }
}

/// For each byte value, its 8 bits as 8 bytes that are 0 or 1, the lowest bit in the first byte.
pub(super) const SPREAD: [[u8; 8]; 256] = {
    let mut table = [[0; 8]; 256];
    let mut value = 0;
    while value < 256 {
        let mut bit = 0;
        while bit < 8 {
            table[value][bit] = (value >> bit & 1) as u8;
            bit += 1;
        }
        value += 1;
    }
    table
};

/// Calls `run(start, end)` for every run of set bits.
#[inline(always)]
pub(super) fn for_each_run(words: &[u64], mut run: impl FnMut(u32, u32)) {
    let mut open = None;
    for (at, &word) in words.iter().enumerate() {
        let (base, mut done) = (at as u32 * 64, 0);
        // In an open run its end is the next clear bit, else its start the next set bit.
        loop {
            let wanted = if open.is_some() { !word } else { word };
            let rest = wanted & u64::MAX.checked_shl(done).unwrap_or(0);
            if rest == 0 {
                break;
            }
            done = rest.trailing_zeros();
            open = match open {
                Some(start) => {
                    run(start, base + done);
                    None
                }
                None => Some(base + done),
            };
        }
    }
    if let Some(start) = open {
        run(start, words.len() as u32 * 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of many lengths and patterns, by a generator that needs no crate.
    fn rows() -> impl Iterator<Item = Vec<u8>> {
        let mut state = 1u64;
        (1..=200).flat_map(move |length| {
            [2, 5, 50].map(|odds| {
                (0..length)
                    .map(|_| {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        u8::from((state >> 33).is_multiple_of(odds))
                    })
                    .collect()
            })
        })
    }

    #[test]
    fn packing_and_spreading_are_inverse() {
        for row in rows() {
            let mut packed = vec![u64::MAX; words(row.len())];
            pack(&row, &mut packed);
            let spread: Vec<u8> = packed
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .flat_map(|byte| SPREAD[usize::from(byte)])
                .collect();
            assert_eq!(spread[..row.len()], row);
            assert!(spread[row.len()..].iter().all(|bit| *bit == 0));
        }
    }

    #[test]
    fn runs_cover_exactly_the_set_bits() {
        for row in rows() {
            let mut packed = vec![0; words(row.len())];
            pack(&row, &mut packed);
            let mut drawn = vec![0; row.len()];
            let mut last = None;
            for_each_run(&packed, |start, end| {
                assert!(start < end && last.is_none_or(|last| last < start), "runs are apart and in order");
                drawn[start as usize..end as usize].fill(1);
                last = Some(end);
            });
            assert_eq!(drawn, row);
        }
    }
}
