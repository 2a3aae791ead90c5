//! What instructions calculate, each by its definition in the PTX ISA.
//!
//! Exactly those that the kernels' PTX has: anything else is refused when it is parsed. Registers hold bits, with zeros above a
//! register's own width. Sums and products of floats are only there with their rounding (`.rn`): without it a compiler may
//! contract them.

/// From the operands, of which there are up to four, to the result.
pub(crate) type Compute = fn([u64; 4]) -> u64;

/// How many operands an instruction has, and what it makes of them.
pub(crate) fn compute(opcode: &str) -> Option<(usize, Compute)> {
    Some(match opcode {
        "mov.u16" => (1, |[a, ..]| low16(a)),
        "mov.u32" | "mov.b32" | "mov.f32" => (1, |[a, ..]| low32(a)),
        "mov.u64" | "mov.b64" | "mov.f64" | "cvta.to.global.u64" => (1, |[a, ..]| a),
        "mov.b64.from_halves" => (2, |[low, high, ..]| high << 32 | low32(low)),
        "mov.b64.low_half" => (1, |[a, ..]| low32(a)),
        "mov.b64.high_half" => (1, |[a, ..]| a >> 32),
        "mov.b32.low_half" => (1, |[a, ..]| low16(a)),
        "mov.b32.high_half" => (1, |[a, ..]| low32(a) >> 16),
        "mov.pred" => (1, |[a, ..]| (a != 0).into()),

        "add.s32" => (2, |[a, b, ..]| low32(a.wrapping_add(b))),
        "add.s64" => (2, |[a, b, ..]| a.wrapping_add(b)),
        "sub.s32" => (2, |[a, b, ..]| low32(a.wrapping_sub(b))),
        "sub.s64" => (2, |[a, b, ..]| a.wrapping_sub(b)),
        "mul.lo.s32" => (2, |[a, b, ..]| low32(a.wrapping_mul(b))),
        "mul.lo.s64" => (2, |[a, b, ..]| a.wrapping_mul(b)),
        "mul.wide.u16" => (2, |[a, b, ..]| low16(a) * low16(b)),
        "mul.wide.u32" => (2, |[a, b, ..]| low32(a) * low32(b)),
        "mad.lo.s32" => (3, |[a, b, c, _]| low32(a.wrapping_mul(b).wrapping_add(c))),
        // That nothing is divided by 0 is checked before.
        "div.u32" => (2, |[a, b, ..]| low32(a) / low32(b)),
        "div.u64" => (2, |[a, b, ..]| a / b),
        "rem.u32" => (2, |[a, b, ..]| low32(a) % low32(b)),
        "rem.u64" => (2, |[a, b, ..]| a % b),
        "neg.s32" => (1, |[a, ..]| low32(a.wrapping_neg())),
        "neg.s64" => (1, |[a, ..]| a.wrapping_neg()),
        "min.u32" => (2, |[a, b, ..]| low32(a).min(low32(b))),
        "min.u64" => (2, |[a, b, ..]| a.min(b)),
        "max.u32" => (2, |[a, b, ..]| low32(a).max(low32(b))),
        "max.u64" => (2, |[a, b, ..]| a.max(b)),
        "max.s32" => (2, |[a, b, ..]| (a as i32).max(b as i32) as u32 as u64),

        "and.b16" => (2, |[a, b, ..]| low16(a & b)),
        "and.b32" => (2, |[a, b, ..]| low32(a & b)),
        "and.b64" | "and.pred" => (2, |[a, b, ..]| a & b),
        "or.b16" => (2, |[a, b, ..]| low16(a | b)),
        "or.b32" => (2, |[a, b, ..]| low32(a | b)),
        "or.b64" | "or.pred" => (2, |[a, b, ..]| a | b),
        "xor.pred" => (2, |[a, b, ..]| a ^ b),
        "not.pred" => (1, |[a, ..]| a ^ 1),
        "not.b32" => (1, |[a, ..]| low32(!a)),
        "not.b64" => (1, |[a, ..]| !a),
        // Shifts by more than the width count as shifts by the width.
        "shl.b32" => (2, |[a, b, ..]| (a as u32).checked_shl(b as u32).unwrap_or(0).into()),
        "shl.b64" => (2, |[a, b, ..]| a.checked_shl(b as u32).unwrap_or(0)),
        "shr.u32" => (2, |[a, b, ..]| (a as u32).checked_shr(b as u32).unwrap_or(0).into()),
        "shr.u64" => (2, |[a, b, ..]| a.checked_shr(b as u32).unwrap_or(0)),
        "brev.b32" => (1, |[a, ..]| (a as u32).reverse_bits().into()),
        "clz.b32" => (1, |[a, ..]| (a as u32).leading_zeros().into()),
        "popc.b32" => (1, |[a, ..]| (a as u32).count_ones().into()),
        // How far the highest bit is to be shifted to the left end; all bits where there is none.
        "bfind.shiftamt.u32" => (1, |[a, ..]| match a as u32 {
            0 => u32::MAX.into(),
            bits => bits.leading_zeros().into(),
        }),
        // The low bits of `a` in `b`, from a bit on, so many.
        "bfi.b32" => (4, |[a, b, from, count]| {
            let (from, count) = (from as u32 & 0xFF, count as u32 & 0xFF);
            let mask = low32(1u64.checked_shl(count).unwrap_or(0).wrapping_sub(1));
            let (mask, bits) = (mask.checked_shl(from).unwrap_or(0), a.checked_shl(from).unwrap_or(0));
            low32(b & !mask | bits & mask)
        }),

        "selp.b16" | "selp.u16" => (3, |[a, b, p, _]| low16(if p != 0 { a } else { b })),
        "selp.b32" | "selp.u32" | "selp.f32" => (3, |[a, b, p, _]| low32(if p != 0 { a } else { b })),
        "selp.b64" | "selp.u64" => (3, |[a, b, p, _]| if p != 0 { a } else { b }),

        "setp.eq.s16" => (2, |[a, b, ..]| (a as i16 == b as i16).into()),
        "setp.ne.s16" => (2, |[a, b, ..]| (a as i16 != b as i16).into()),
        "setp.lt.s16" => (2, |[a, b, ..]| ((a as i16) < b as i16).into()),
        "setp.gt.u16" => (2, |[a, b, ..]| (a as u16 > b as u16).into()),
        "setp.eq.s32" | "setp.eq.b32" => (2, |[a, b, ..]| (a as i32 == b as i32).into()),
        "setp.ne.s32" => (2, |[a, b, ..]| (a as i32 != b as i32).into()),
        "setp.lt.s32" => (2, |[a, b, ..]| ((a as i32) < b as i32).into()),
        "setp.gt.s32" => (2, |[a, b, ..]| (a as i32 > b as i32).into()),
        "setp.lt.u32" => (2, |[a, b, ..]| ((a as u32) < b as u32).into()),
        "setp.gt.u32" => (2, |[a, b, ..]| (a as u32 > b as u32).into()),
        "setp.ge.u32" => (2, |[a, b, ..]| (a as u32 >= b as u32).into()),
        "setp.eq.s64" => (2, |[a, b, ..]| (a == b).into()),
        "setp.ne.s64" => (2, |[a, b, ..]| (a != b).into()),
        "setp.lt.s64" => (2, |[a, b, ..]| ((a as i64) < b as i64).into()),
        "setp.lt.u64" => (2, |[a, b, ..]| (a < b).into()),
        "setp.le.u64" => (2, |[a, b, ..]| (a <= b).into()),
        "setp.gt.u64" => (2, |[a, b, ..]| (a > b).into()),
        "setp.ge.u64" => (2, |[a, b, ..]| (a >= b).into()),
        // False with a NaN; that with a `u` is true with one.
        "setp.eq.f32" => (2, |[a, b, ..]| (float(a) == float(b)).into()),
        "setp.lt.f32" => (2, |[a, b, ..]| (float(a) < float(b)).into()),
        "setp.le.f32" => (2, |[a, b, ..]| (float(a) <= float(b)).into()),
        "setp.gt.f32" => (2, |[a, b, ..]| (float(a) > float(b)).into()),
        "setp.neu.f32" => (2, |[a, b, ..]| (float(a) != float(b)).into()),
        "setp.nan.f32" => (2, |[a, b, ..]| (float(a).is_nan() || float(b).is_nan()).into()),

        "add.rn.f32" => (2, |[a, b, ..]| bits(float(a) + float(b))),
        "sub.rn.f32" => (2, |[a, b, ..]| bits(float(a) - float(b))),
        "mul.rn.f32" => (2, |[a, b, ..]| bits(float(a) * float(b))),
        "div.rn.f32" => (2, |[a, b, ..]| bits(float(a) / float(b))),
        "rcp.rn.f32" => (1, |[a, ..]| bits(1.0 / float(a))),
        "fma.rn.f32" => (3, |[a, b, c, _]| bits(float(a).mul_add(float(b), float(c)))),
        // The other one where one is NaN, and 0 is above -0.
        "max.f32" => (2, |[a, b, ..]| match (float(a), float(b)) {
            (0.0, 0.0) => a & b,
            (a, b) => bits(a.max(b)),
        }),
        "add.rn.f64" => (2, |[a, b, ..]| (f64::from_bits(a) + f64::from_bits(b)).to_bits()),
        "div.rn.f64" => (2, |[a, b, ..]| (f64::from_bits(a) / f64::from_bits(b)).to_bits()),

        "cvt.u16.u32" => (1, |[a, ..]| low16(a)),
        "cvt.u32.u16" | "cvt.u64.u16" => (1, |[a, ..]| low16(a)),
        "cvt.u32.u64" => (1, |[a, ..]| low32(a)),
        "cvt.u64.u32" => (1, |[a, ..]| low32(a)),
        "cvt.s64.s32" => (1, |[a, ..]| a as i32 as u64),
        "cvt.rn.f32.s16" => (1, |[a, ..]| bits((a as i16).into())),
        "cvt.rn.f32.u16" => (1, |[a, ..]| bits((a as u16).into())),
        "cvt.rn.f32.u64" => (1, |[a, ..]| bits(a as f32)),
        "cvt.rn.f64.u64" => (1, |[a, ..]| (a as f64).to_bits()),
        "cvt.rn.f32.f64" => (1, |[a, ..]| bits(f64::from_bits(a) as f32)),
        "cvt.f64.f32" => (1, |[a, ..]| f64::from(float(a)).to_bits()),
        // To the nearest of the type; NaN becomes its highest bit.
        "cvt.rzi.u64.f32" => (1, |[a, ..]| if float(a).is_nan() { 1 << 63 } else { float(a) as u64 }),
        "cvt.rmi.f32.f32" => (1, |[a, ..]| bits(float(a).floor())),
        // To 0 to 1; NaN becomes 0.
        "cvt.sat.f32.f32" => (1, |[a, ..]| match float(a) {
            a if a > 0.0 => bits(a.min(1.0)),
            _ => 0,
        }),
        _ => return None,
    })
}

/// What an atomic instruction writes, of what is there and of its operands, of which there are so many.
pub(crate) fn atomic(operation: &str) -> Option<(usize, Compute)> {
    Some(match operation {
        "add.u32" => (1, |[old, a, ..]| low32(old.wrapping_add(a))),
        "add.u64" => (1, |[old, a, ..]| old.wrapping_add(a)),
        "min.u64" => (1, |[old, a, ..]| old.min(a)),
        "max.u64" => (1, |[old, a, ..]| old.max(a)),
        "cas.b32" => (2, |[old, a, b, _]| if old == low32(a) { low32(b) } else { old }),
        "cas.b64" => (2, |[old, a, b, _]| if old == a { b } else { old }),
        _ => return None,
    })
}

fn low16(bits: u64) -> u64 {
    bits & 0xFFFF
}

fn low32(bits: u64) -> u64 {
    bits & 0xFFFF_FFFF
}

fn float(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// There is one NaN.
fn bits(value: f32) -> u64 {
    if value.is_nan() { 0x7FFF_FFFF } else { value.to_bits().into() }
}
