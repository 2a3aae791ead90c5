//! Kernels compiled for the processor at hand: the only unsafe code of the pipeline.
//!
//! A kernel is ordinary safe code. [`run`] compiles it once for each set of vector instructions, and picks the widest
//! that the processor has. Nothing but the width differs: results are the same to the bit.

/// Copies bytes past the processor's caches, for memory that is not read again here: it need not be read to be written.
/// Both are equally long.
pub(super) fn stream(from: &[u8], to: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_sfence, _mm_stream_si128};
        // SAFETY: 16 bytes of any value are an __m128i.
        let (head, blocks, tail) = unsafe { to.align_to_mut::<__m128i>() };
        let (from_head, from) = from.split_at(head.len());
        let (from_blocks, from_tail) = from.as_chunks::<16>();
        head.copy_from_slice(from_head);
        for (to, from) in blocks.iter_mut().zip(from_blocks) {
            // SAFETY: SSE2 is part of x86-64; `to` is aligned, ours alone, and of the right size.
            unsafe { _mm_stream_si128(to, std::mem::transmute::<[u8; 16], __m128i>(*from)) };
        }
        tail.copy_from_slice(from_tail);
        // SAFETY: SSE is part of x86-64. Everything is written before anyone is told so.
        unsafe { _mm_sfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}

/// Asks the processor for what lies `ahead` elements beyond these, which may be outside of any memory.
#[inline(always)]
pub(super) fn prefetch<T, const N: usize>(elements: &[T; N], ahead: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of_val(elements)).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let place = elements.as_ptr().wrapping_add(ahead).cast::<i8>().wrapping_add(line);
        // SAFETY: SSE is part of x86-64, and a prefetch reads nothing that could be seen, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place) };
    }
}

/// Eight of eight floats, in any order: those at these places, which are below 8.
#[inline(always)]
pub(super) fn pick(from: &[f32; 8], places: &[u32; 8]) -> [f32; 8] {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        use std::arch::x86_64::{
            _mm256_loadu_ps, _mm256_loadu_si256, _mm256_permutevar8x32_ps, _mm256_storeu_ps,
        };
        #[target_feature(enable = "avx2")]
        #[inline]
        fn avx2(from: &[f32; 8], places: &[u32; 8]) -> [f32; 8] {
            let mut picked = [0.0; 8];
            // SAFETY: all three are 32 bytes, and need not be aligned.
            unsafe {
                let (from, places) =
                    (_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_si256(places.as_ptr().cast()));
                _mm256_storeu_ps(picked.as_mut_ptr(), _mm256_permutevar8x32_ps(from, places));
            }
            picked
        }
        // SAFETY: the processor has AVX2.
        return unsafe { avx2(from, places) };
    }
    places.map(|place| from[place as usize % 8])
}

/// The lowest bits of 16 bytes, the first byte's in the lowest bit.
#[inline(always)]
pub(super) fn lowest_bits(bytes: &[u8; 16]) -> u16 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_movemask_epi8, _mm_slli_epi16};
        // SAFETY: SSE2 is part of x86-64; 16 bytes of any value are an __m128i.
        unsafe {
            _mm_movemask_epi8(_mm_slli_epi16::<7>(std::mem::transmute::<[u8; 16], __m128i>(*bytes))) as u16
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    bytes.iter().rev().fold(0, |bits, byte| bits << 1 | u16::from(byte & 1))
}

/// Code worth compiling for wider vectors. Implement `run` as `#[inline(always)]`, and call nothing in it that is not.
pub(super) trait Kernel {
    type Output;
    fn run(self) -> Self::Output;
}

/// Runs a kernel with the widest vectors of this processor.
pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,popcnt,lzcnt")]
        fn avx512<K: Kernel>(kernel: K) -> K::Output {
            kernel.run()
        }
        #[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt,lzcnt")]
        fn avx2<K: Kernel>(kernel: K) -> K::Output {
            kernel.run()
        }
        let small = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("lzcnt");
        let large = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        if small && large {
            // SAFETY: the processor has every feature that the function is compiled for.
            return unsafe { avx512(kernel) };
        }
        if small {
            // SAFETY: as above.
            return unsafe { avx2(kernel) };
        }
    }
    kernel.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streaming_copies_every_byte_wherever_it_lies() {
        let from: Vec<u8> = (0..200).collect();
        for (start, length) in (0..20).flat_map(|start| [0, 1, 15, 16, 17, 100].map(|length| (start, length)))
        {
            let mut to = [255; 200];
            stream(&from[7..7 + length], &mut to[start..start + length]);
            assert_eq!(to[start..start + length], from[7..7 + length]);
            assert!(to[..start].iter().chain(&to[start + length..]).all(|byte| *byte == 255));
        }
    }

    #[test]
    fn eight_are_picked_from_anywhere() {
        let from = [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, f32::INFINITY];
        for places in [[0, 1, 2, 3, 4, 5, 6, 7], [7, 7, 0, 0, 3, 3, 3, 1], [6; 8]] {
            assert_eq!(pick(&from, &places), places.map(|place| from[place as usize]));
        }
    }

    #[test]
    fn lowest_bits_are_gathered_in_order() {
        let bytes = [1, 0, 3, 2, 255, 254, 0, 1, 128, 129, 0, 0, 7, 1, 0, 1];
        assert_eq!(lowest_bits(&bytes), 0b1011_0010_1001_0101);
    }

    struct Sum<'a>(&'a [u32]);

    impl Kernel for Sum<'_> {
        type Output = u32;
        #[inline(always)]
        fn run(self) -> u32 {
            self.0.iter().sum()
        }
    }

    #[test]
    fn a_kernel_gives_what_plain_code_gives() {
        let numbers: Vec<u32> = (0..1000).collect();
        assert_eq!(run(Sum(&numbers)), Sum(&numbers).run());
    }
}
