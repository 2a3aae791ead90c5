//! Instructions where their definition is easily missed: each is given operands and compared with the host's own arithmetic, or
//! with what the PTX ISA says.

#![allow(clippy::unwrap_used)] // helpers of tests fail the test

mod common;

use common::run;

/// What an instruction makes of operands of these types, in one thread. Operands are written as `A`, `B`, `C`, the result as `D`.
fn result(instruction: &str, types: [&str; 4], operands: [u64; 3]) -> u64 {
    let register = |kind: &str, number: usize| match kind {
        "u16" => format!("%rs{number}"),
        "u32" => format!("%r{number}"),
        "f32" => format!("%f{number}"),
        "f64" => format!("%fd{number}"),
        "pred" => format!("%p{number}"),
        _ => format!("%rd{number}"),
    };
    let mut text = String::new();
    let [to, from @ ..] = types;
    let mut whole = instruction.replace('D', &register(to, 9));
    for (number, (name, kind)) in ["A", "B", "C"].into_iter().zip(from).enumerate() {
        let name_of = register(kind, number + 4);
        match kind {
            "" => continue,
            "pred" => {
                text +=
                    &format!("ld.global.u32 %r3, [%rd1+{}];\nsetp.ne.s32 {name_of}, %r3, 0;\n", number * 8)
            }
            _ => text += &format!("ld.global.{kind} {name_of}, [%rd1+{}];\n", number * 8),
        }
        whole = whole.replace(name, &name_of);
    }
    text += &format!("{whole}\n");
    text += &match to {
        "pred" => "selp.u32 %r3, 1, 0, %p9;\nst.global.u32 [%rd2], %r3;".to_owned(),
        _ => format!("st.global.{to} [%rd2], {};", register(to, 9)),
    };
    let input: Vec<u8> = operands.into_iter().flat_map(u64::to_le_bytes).collect();
    let output = run(&text, &input, [1, 1, 0], 0).unwrap();
    u64::from_le_bytes(output[..8].try_into().unwrap())
}

fn unary(instruction: &str, to: &str, from: &str, a: u64) -> u64 {
    result(instruction, [to, from, "", ""], [a, 0, 0])
}

fn floats(instruction: &str, operands: [f32; 3]) -> f32 {
    let bits = operands.map(|operand| operand.to_bits().into());
    f32::from_bits(result(instruction, ["f32"; 4], bits) as u32)
}

fn compares(instruction: &str, a: f32, b: f32) -> bool {
    result(instruction, ["pred", "f32", "f32", ""], [a.to_bits().into(), b.to_bits().into(), 0]) != 0
}

#[test]
fn shifts_beyond_the_width_clear_all_bits() {
    let all = u64::MAX;
    for (instruction, kind, width) in [
        ("shl.b32 D, A, B;", "u32", 32),
        ("shr.u32 D, A, B;", "u32", 32),
        ("shl.b64 D, A, B;", "u64", 64),
        ("shr.u64 D, A, B;", "u64", 64),
    ] {
        let shift = |by: u64| result(instruction, [kind, kind, "u32", ""], [all, by, 0]);
        let of_width = all >> (64 - width);
        let one = if instruction.contains("shl") { of_width << 1 & of_width } else { of_width >> 1 };
        assert_eq!([shift(0), shift(1)], [of_width, one], "{instruction}");
        assert_eq!([width, width + 1, 255, 1 << 31].map(shift), [0; 4], "{instruction}");
    }
}

#[test]
fn integers_wrap_and_widen_by_their_sign() {
    let (minus, wide) = (u64::from(-3i32 as u32), ["u64", "u32", "u32", ""]);
    assert_eq!(result("mul.wide.u32 D, A, B;", wide, [minus, 5, 0]), minus * 5);
    let wide = ["u32", "u16", "u16", ""];
    assert_eq!(result("mul.wide.u16 D, A, B;", wide, [0xFFFD, 5, 0]), 0xFFFD * 5);
    assert_eq!(result("mad.lo.s32 D, A, B, C;", ["u32"; 4], [minus, 5, 20]), 5);
    assert_eq!(result("add.s32 D, A, B;", ["u32"; 4], [minus, 5, 0]), 2);
    assert_eq!(result("sub.s32 D, A, B;", ["u32"; 4], [2, 5, 0]), minus);
    assert_eq!(result("max.s32 D, A, B;", ["u32"; 4], [minus, 5, 0]), 5);
    assert_eq!(result("max.u32 D, A, B;", ["u32"; 4], [minus, 5, 0]), minus);
    assert_eq!(unary("neg.s32 D, A;", "u32", "u32", 3), minus);
    assert_eq!(unary("cvt.s64.s32 D, A;", "u64", "u32", minus), -3i64 as u64);
    assert_eq!(unary("cvt.u64.u32 D, A;", "u64", "u32", minus), minus);
    assert_eq!(unary("cvt.u32.u16 D, A;", "u32", "u16", 0xFFFD), 0xFFFD);
    let compared = |instruction, kind| result(instruction, ["pred", kind, kind, ""], [u64::MAX, 1, 0]);
    assert_eq!(compared("setp.lt.s16 D, A, B;", "u16"), 1);
    assert_eq!(compared("setp.gt.u16 D, A, B;", "u16"), 1);
    assert_eq!(compared("setp.lt.s32 D, A, B;", "u32"), 1);
    assert_eq!(compared("setp.lt.u32 D, A, B;", "u32"), 0);
    assert_eq!(compared("setp.lt.s64 D, A, B;", "u64"), 1);
    assert_eq!(compared("setp.lt.u64 D, A, B;", "u64"), 0);
}

#[test]
fn numbers_in_the_text_have_the_width_of_the_instruction() {
    assert_eq!(unary("or.b32 D, A, -2;", "u32", "u32", 1), 0xFFFF_FFFF);
    assert_eq!(unary("mul.wide.u32 D, A, -1;", "u64", "u32", 2), 2 * 0xFFFF_FFFF);
    assert_eq!(result("selp.b32 D, -1, 0, A;", ["u32", "pred", "", ""], [1, 0, 0]), 0xFFFF_FFFF);
    assert_eq!(unary("setp.eq.s32 D, A, -1;", "pred", "u32", 0xFFFF_FFFF), 1);
    assert_eq!(unary("and.b64 D, A, -4294967296;", "u64", "u64", u64::MAX), 0xFFFF_FFFF_0000_0000);
    assert_eq!(floats("add.rn.f32 D, A, 0f40000000;", [3.0; 3]), 5.0);
}

#[test]
fn bits() {
    for bits in [0, 1, 0x8000_0000, 0x0001_2345, 0xFFFF_FFFF] {
        let (of, on_32) = (bits as u32, |instruction: &str| unary(instruction, "u32", "u32", bits));
        assert_eq!(on_32("clz.b32 D, A;"), of.leading_zeros().into());
        assert_eq!(on_32("popc.b32 D, A;"), of.count_ones().into());
        assert_eq!(on_32("brev.b32 D, A;"), of.reverse_bits().into());
        let shift = if bits == 0 { u32::MAX } else { of.leading_zeros() };
        assert_eq!(on_32("bfind.shiftamt.u32 D, A;"), shift.into());
    }
    let insert = |instruction| result(instruction, ["u32"; 4], [0xFFFF_FFF5, 0xABCD_0000, 0]);
    assert_eq!(insert("bfi.b32 D, A, B, 4, 8;"), 0xABCD_0F50);
    assert_eq!(insert("bfi.b32 D, A, B, 28, 8;"), 0x5BCD_0000);
    assert_eq!(insert("bfi.b32 D, A, B, 0, 40;"), 0xFFFF_FFF5);
    assert_eq!(insert("bfi.b32 D, A, B, 40, 4;"), 0xABCD_0000);
    assert_eq!(insert("bfi.b32 D, A, B, 4, 0;"), 0xABCD_0000);
    let halves = "mov.b64 {%r2, %r3}, A;\nmov.b64 D, {%r3, %r2};";
    assert_eq!(unary(halves, "u64", "u64", 0x0123_4567_89AB_CDEF), 0x89AB_CDEF_0123_4567);
    let halves = "mov.b32 {%rs1, %rs2}, A;\nmul.wide.u16 D, %rs2, 1;";
    assert_eq!(unary(halves, "u32", "u32", 0x0123_4567), 0x0123);
}

#[test]
fn floats_are_rounded_once_to_the_nearest() {
    let (a, b, c) = (1.0 + f32::EPSILON, 1.0 - f32::EPSILON, -1.0);
    assert_eq!(floats("fma.rn.f32 D, A, B, C;", [a, b, c]), -f32::EPSILON * f32::EPSILON);
    assert_eq!(floats("mul.rn.f32 %f1, A, B;\nadd.rn.f32 D, %f1, C;", [a, b, c]), 0.0);
    assert_eq!(floats("div.rn.f32 D, A, B;", [1.0, 3.0, 0.0]), 1.0 / 3.0);
    assert_eq!(floats("rcp.rn.f32 D, A;", [3.0, 0.0, 0.0]), 1.0 / 3.0);
    assert_eq!(floats("rcp.rn.f32 D, A;", [-0.0, 0.0, 0.0]), f32::NEG_INFINITY);
    let small = f32::MIN_POSITIVE / 4.0;
    assert_eq!(floats("sub.rn.f32 D, A, B;", [3.0 * small, small, 0.0]), 2.0 * small, "no flush to 0");
    for value in [1 << 24 | 1, 3 << 24 | 3, (1 << 25) + 3, u64::MAX, 0] {
        let converted = f32::from_bits(unary("cvt.rn.f32.u64 D, A;", "f32", "u64", value) as u32);
        assert!([-1, 0, 1].into_iter().all(|other| {
            let neighbour = f32::from_bits(converted.to_bits().saturating_add_signed(other));
            (f64::from(converted) - value as f64).abs() <= (f64::from(neighbour) - value as f64).abs()
        }));
    }
    assert_eq!(f64::from_bits(unary("cvt.rn.f64.u64 D, A;", "f64", "u64", 5)), 5.0);
    let third = (1.0f64 / 3.0).to_bits();
    assert_eq!(f32::from_bits(unary("cvt.rn.f32.f64 D, A;", "f32", "f64", third) as u32), 1.0 / 3.0);
    let third = u64::from((1.0f32 / 3.0).to_bits());
    assert_eq!(f64::from_bits(unary("cvt.f64.f32 D, A;", "f64", "f32", third)), f64::from(1.0f32 / 3.0));
    assert_eq!(f32::from_bits(unary("cvt.rn.f32.s16 D, A;", "f32", "u16", 0xFFFD) as u32), -3.0);
    assert_eq!(f32::from_bits(unary("cvt.rn.f32.u16 D, A;", "f32", "u16", 0xFFFD) as u32), 65533.0);
}

#[test]
fn floats_to_integers_stay_within_the_type() {
    let convert = |value: f32| unary("cvt.rzi.u64.f32 D, A;", "u64", "f32", value.to_bits().into());
    assert_eq!([convert(2.9), convert(-2.9), convert(-0.0)], [2, 0, 0]);
    assert_eq!([convert(f32::INFINITY), convert(1e30), convert(f32::NEG_INFINITY)], [u64::MAX, u64::MAX, 0]);
    assert_eq!(convert(f32::NAN), 1 << 63);
    assert_eq!(floats("cvt.rmi.f32.f32 D, A;", [-2.5, 0.0, 0.0]), -3.0);
    let saturate = |value: f32| floats("cvt.sat.f32.f32 D, A;", [value, 0.0, 0.0]).to_bits();
    assert_eq!([-1.0, -0.0, 0.25, 7.0, f32::NAN].map(saturate), [0.0, 0.0, 0.25, 1.0, 0.0].map(f32::to_bits));
}

#[test]
fn nan_and_zeros() {
    let max = |a: f32, b: f32| floats("max.f32 D, A, B;", [a, b, 0.0]).to_bits();
    assert_eq!([max(f32::NAN, 1.0), max(1.0, f32::NAN)], [1.0f32.to_bits(); 2]);
    assert_eq!([max(-0.0, 0.0), max(0.0, -0.0)], [0; 2]);
    assert_eq!(max(-0.0, -0.0), (-0.0f32).to_bits());
    // There is one NaN.
    assert_eq!([max(-f32::NAN, f32::NAN), max(-f32::NAN, -f32::NAN)], [0x7FFF_FFFF; 2]);
    assert_eq!(floats("add.rn.f32 D, A, B;", [-f32::NAN, 1.0, 0.0]).to_bits(), 0x7FFF_FFFF);
    for (comparison, with_nan, less, equal) in [
        ("eq", false, false, true),
        ("lt", false, true, false),
        ("le", false, true, true),
        ("gt", false, false, false),
        ("neu", true, true, false),
        ("nan", true, false, false),
    ] {
        let compares = |a, b| compares(&format!("setp.{comparison}.f32 D, A, B;"), a, b);
        assert_eq!([compares(f32::NAN, 1.0), compares(1.0, f32::NAN)], [with_nan; 2], "{comparison}");
        assert_eq!([compares(1.0, 2.0), compares(-0.0, 0.0)], [less, equal], "{comparison}");
    }
}

/// What each of 64 threads writes from `%r9`.
fn of_threads(instructions: &str) -> Vec<u32> {
    let text = format!(
        "{instructions}\nshl.b32 %r8, %r1, 2;\ncvt.u64.u32 %rd8, %r8;\nadd.s64 %rd9, %rd2, %rd8;\nst.global.u32 [%rd9], %r9;"
    );
    let outputs: Vec<_> = (0..6).map(|seed| run(&text, &[7; 64], [1, 64, 0], seed).unwrap()).collect();
    assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]));
    outputs[0][..256].as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
}

#[test]
fn exchanges() {
    let expected = |of: fn(u32) -> u32| -> Vec<u32> { (0..64).map(of).collect() };
    let value = |mode: &str, distance: u32, bounds: u32| {
        of_threads(&format!("shfl.sync.{mode}.b32 %r9|%p1, %r1, {distance}, {bounds}, -1;"))
    };
    let in_range = |mode: &str, distance: u32, bounds: u32| {
        of_threads(&format!(
            "shfl.sync.{mode}.b32 %r5|%p1, %r1, {distance}, {bounds}, -1;\nselp.u32 %r9, 1, 0, %p1;"
        ))
    };
    assert_eq!(value("bfly", 5, 31), expected(|thread| thread ^ 5));
    assert_eq!(value("up", 3, 0), expected(|thread| if thread % 32 < 3 { thread } else { thread - 3 }));
    assert_eq!(in_range("up", 3, 0), expected(|thread| (thread % 32 >= 3).into()));
    assert_eq!(value("idx", 9, 31), expected(|thread| thread / 32 * 32 + 9));
    // Within 8 lanes: the bits above stay, and the last lane is 7 of them.
    let eight = 0x1807;
    assert_eq!(value("up", 3, 0x1800), expected(|thread| if thread % 8 < 3 { thread } else { thread - 3 }));
    assert_eq!(value("idx", 9, eight), expected(|thread| thread / 8 * 8 + 1));
    assert_eq!(value("bfly", 8, eight), expected(|thread| if thread % 16 < 8 { thread } else { thread - 8 }));
    assert_eq!(in_range("bfly", 8, eight), expected(|thread| (thread % 16 >= 8).into()));
    let ballot = "setp.gt.u32 %p1, %r1, 36;\nvote.sync.ballot.b32 %r9, %p1, -1;";
    assert_eq!(of_threads(ballot), expected(|thread| if thread < 32 { 0 } else { !0 << 5 }));
}

#[test]
fn guards_and_special_registers() {
    let guarded = "mov.u32 %r9, 7;\nsetp.lt.u32 %p1, %r1, 10;\n@%p1 mov.u32 %r9, 8;\nsetp.lt.u32 %p2, %r1, 20;\n\
                   @!%p2 mov.u32 %r9, 9;";
    let expected = |thread| {
        if thread < 10 {
            8
        } else if thread < 20 {
            7
        } else {
            9
        }
    };
    assert_eq!(of_threads(guarded), (0..64).map(expected).collect::<Vec<_>>());
    let place = "mov.u32 %r2, %ntid.x;\nmov.u32 %r3, %ctaid.x;\nmov.u32 %r4, %nctaid.x;\nshl.b32 %r5, %r2, 16;\n\
                 shl.b32 %r6, %r3, 8;\nor.b32 %r7, %r5, %r6;\nor.b32 %r9, %r7, %r4;";
    assert_eq!(of_threads(place), [64 << 16 | 1; 64]);
}

#[test]
fn vectors_and_atomics() {
    let vectors = "ld.global.v4.u8 {%rs1, %rs2, %rs3, %rs4}, [%rd1+4];\nst.global.v4.u8 [%rd2], {%rs4, %rs3, %rs2, %rs1};\n\
                   ld.volatile.global.u16 %rs5, [%rd1+2];\nst.global.u16 [%rd2+4], %rs5;";
    let output = run(vectors, &[0, 1, 2, 3, 4, 5, 6, 7], [1, 1, 0], 0).unwrap();
    assert_eq!(output[..8], [7, 6, 5, 4, 2, 3, 0, 0]);
    let atomics = "atom.global.min.u64 %rd3, [%rd2], 5;\natom.global.max.u64 %rd3, [%rd2+8], -1;\n\
                   atom.global.add.u64 %rd3, [%rd2+16], %rd3;\natom.global.cas.b32 %r2, [%rd2+24], 0, 7;\n\
                   atom.global.cas.b32 %r3, [%rd2+24], 0, 8;\nst.global.u32 [%rd2+28], %r3;\n\
                   atom.global.cas.b64 %rd4, [%rd2+32], 0, -2;";
    let output = run(atomics, &[], [1, 1, 0], 0).unwrap();
    let numbers: Vec<u64> =
        output[..40].as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    assert_eq!(numbers, [0, u64::MAX, 0, 7 << 32 | 7, -2i64 as u64]);
}
