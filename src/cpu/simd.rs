//! Kernels compiled for the processor at hand: the only unsafe code of the pipeline.
//!
//! A kernel is ordinary safe code. [`run`] compiles it once for each set of vector instructions, and picks the widest
//! that the processor has. Nothing but the width differs: results are the same to the bit.

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
