//! Each mistake that the interpreter claims to find, in a kernel that has it, beside what is right.

#![allow(clippy::unwrap_used)] // helpers of tests fail the test

mod common;

use common::{program, run};
use ptx_interpreter::{Launch, Memory, Program};

/// Says this of two warps in their own order, which have 64 bytes of input and of shared memory.
#[track_caller]
fn is_found(instructions: &str, said: &str) {
    let error = run(instructions, &[7; 64], [1, 64, 64], 0).unwrap_err();
    assert!(error.contains(said) && error.starts_with("test, line "), "{error}");
}

#[track_caller]
fn is_right(instructions: &str) {
    run(instructions, &[7; 64], [1, 64, 64], 0).unwrap();
}

#[test]
fn the_error_names_kernel_line_block_and_thread() {
    let instructions = "setp.ne.s32 %p1, %r1, 5;\n@%p1 bra $L;\nld.global.u8 %rs1, [%rd1+64];\n$L:";
    let error = run(instructions, &[7; 64], [2, 64, 0], 1).unwrap_err();
    // The instructions begin in line 19.
    assert_eq!(
        error,
        "test, line 21 of the PTX, block 1, thread 5: reads 1 bytes from byte 64 on of memory of 64 bytes"
    );
}

#[test]
fn accesses_outside_of_memory() {
    is_right("ld.global.u32 %r2, [%rd1+60];");
    is_found("ld.global.u32 %r2, [%rd1+64];", "reads 4 bytes from byte 64 on of memory of 64");
    is_found("ld.global.u8 %rs1, [%rd1+-1];", "reads 1 bytes from byte -1 on of memory of 64");
    is_found("st.global.u8 [%rd2+1024], 1;", "writes 1 bytes from byte 1024 on of memory of 1024");
    is_found("ld.global.v2.u64 {%rd3, %rd4}, [%rd1+64];", "reads 16 bytes from byte 64");
    is_found("atom.global.add.u32 %r2, [%rd1+64], 1;", "changes 4 bytes from byte 64");
    is_right("mov.u64 %rd3, memory;\nst.shared.u32 [%rd3+60], %r1;");
    is_found("mov.u64 %rd3, memory;\nst.shared.u32 [%rd3+64], %r1;", "from byte 64 on of memory of 64");
    is_right("mov.u64 %rd3, own;\nst.shared.u32 [%rd3+12], %r1;");
    is_found("mov.u64 %rd3, own;\nst.shared.u32 [%rd3+16], %r1;", "from byte 16 on of memory of 16");
    is_found("mov.u64 %rd3, test_param_0;\nld.param.u64 %rd4, [%rd3+16];", "from byte 16 on of memory of 16");
    is_found("mov.u64 %rd3, 0;\nld.global.u32 %r2, [%rd3];", "there is no memory at 0x0");
}

#[test]
fn addresses_of_another_space() {
    is_found("st.shared.u32 [%rd2], 1;", "there is no memory at");
    is_found("mov.u64 %rd3, memory;\nst.global.u32 [%rd3], 1;", "there is no memory at");
}

#[test]
fn memory_that_was_given_back() {
    let mut memory = Memory::global();
    let (kept, freed) = (memory.holding(&[1], 8), memory.holding(&[2], 8));
    memory.free(freed);
    assert_eq!(memory.read(kept, 1), Ok(vec![1]));
    assert!(memory.read(freed, 1).unwrap_err().contains("there is no memory"));
    assert!(memory.fill(freed, 1, 0).is_err());
}

#[test]
fn misaligned_accesses() {
    is_right("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1+16];");
    is_found("ld.global.u32 %r2, [%rd1+2];", "reads 4 bytes at");
    is_found("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1+8];", "reads 16 bytes at");
    is_found("st.global.v2.u32 [%rd2+4], {%r1, %r1};", "writes 8 bytes at");
    is_found("atom.global.add.u64 %rd3, [%rd2+4], 1;", "changes 8 bytes at");
    // Nobody says that `own` begins at a multiple of 16.
    is_found("mov.u64 %rd3, own;\nst.shared.v4.u32 [%rd3], {%r1, %r1, %r1, %r1};", "writes 16 bytes at");
}

#[test]
fn what_nobody_has_written() {
    is_found("mov.u64 %rd3, memory;\nld.shared.u32 %r2, [%rd3];", "byte 0 at 0x10000000010 has never been");
    is_found("mov.u64 %rd3, own;\nst.shared.u8 [%rd3], 1;\nld.shared.u16 %rs1, [%rd3];", "byte 1 at");
    is_found("st.global.u32 [%rd2], %r2;\nld.global.u32 %r3, [%rd2];", "has never been written");
    is_found("setp.eq.s32 %p1, %r2, 0;\n@%p1 bra $L;\n$L:", "depends on a register");
    is_found("add.s64 %rd3, %rd1, %rd4;\nld.global.u8 %rs1, [%rd3];", "depends on a register");
    is_found("atom.global.add.u32 %r2, [%rd2], %r3;", "depends on a register");
    is_found("vote.sync.ballot.b32 %r2, %p1, -1;", "depends on a register");
    // It does not matter where the result is the same without it.
    let known = "mov.pred %p1, -1;\nor.pred %p3, %p1, %p2;\nselp.b32 %r4, %r1, %r2, %p3;\nnot.pred %p4, %p1;\n\
                 and.pred %p5, %p2, %p4;\n@%p5 bra $L;\nst.global.u32 [%rd2], %r4;\nld.global.u32 %r5, [%rd2];\n$L:";
    is_right(known);
    is_found(&known.replace("%r1, %r2, %p3", "%r2, %r1, %p3"), "has never been written");
}

#[test]
fn divisions_by_zero() {
    is_right("div.u32 %r2, 5, 2;");
    for operation in
        ["div.u32 %r2, 5, 0;", "rem.u32 %r2, 5, 0;", "div.u64 %rd3, 5, 0;", "rem.u64 %rd3, 5, 0;"]
    {
        is_found(operation, "divides by 0");
    }
}

#[test]
fn threads_that_do_not_end() {
    is_found("$L:\nbra $L;", "does not end within");
}

#[test]
fn barriers_that_not_all_threads_reach() {
    is_right("bar.sync 0;\nbar.sync 0;");
    let skip = "setp.eq.s32 %p1, %r1, 40;\n@%p1 bra $L;\nbar.sync 0;\n$L:";
    is_found(skip, "waits at a barrier for threads that never come: of 64, 1 have ended, 63 are at barriers");
    let another = "setp.eq.s32 %p1, %r1, 40;\n@%p1 bra $L;\nbar.sync 0;\nret;\n$L:\nbar.sync 0;";
    is_found(
        another,
        "waits at a barrier for threads that never come: of 64, 0 have ended, 64 are at barriers",
    );
}

#[test]
fn exchanges_that_not_all_lanes_take_part_in() {
    let shuffle = "shfl.sync.bfly.b32 %r2|%p2, %r1, 1, 31, -1;";
    is_right(shuffle);
    let skip = format!("setp.eq.s32 %p1, %r1, 40;\n@%p1 bra $L;\n{shuffle}\n$L:");
    is_found(
        &skip,
        "waits at an exchange with lanes ffffffff for threads that never come: of 64, 33 have ended",
    );
    let guarded = format!("setp.lt.u32 %p1, %r1, 8;\n@%p1 {}", shuffle.replace("-1;", "255;"));
    is_right(&guarded);
    is_found(&guarded.replace("255", "254"), "exchanges with lanes 000000fe, of which it is none");
    is_found(&guarded.replace("255", "511"), "waits at an exchange with lanes 000001ff");
    is_found(&guarded.replace("%r1, 1,", "%r1, 8,"), "reads from lane 8, which is not in 000000ff");
    is_found("vote.sync.ballot.b32 %r2, 1, 1;", "exchanges with lanes 00000001, of which it is none");
    // With the same lanes, but not in the same instruction.
    let another = format!("setp.eq.s32 %p1, %r1, 7;\n@%p1 bra $L;\n{shuffle}\nret;\n$L:\n{shuffle}");
    is_found(&another, "waits at an exchange");
}

#[test]
fn a_race_gives_another_result_in_some_order() {
    // Each thread reads what another warp's thread has written.
    let racy = "mov.u64 %rd3, memory;\nshl.b32 %r2, %r1, 2;\ncvt.u64.u32 %rd4, %r2;\nadd.s64 %rd5, %rd3, %rd4;\n\
                st.shared.u32 [%rd5], 0;\nbar.sync 0;\nst.shared.u32 [%rd5], %r1;\nBARRIER\nsub.s32 %r3, 63, %r1;\n\
                shl.b32 %r4, %r3, 2;\ncvt.u64.u32 %rd6, %r4;\nadd.s64 %rd7, %rd3, %rd6;\nld.shared.u32 %r5, [%rd7];\n\
                add.s64 %rd8, %rd2, %rd4;\nst.global.u32 [%rd8], %r5;";
    let runs = |instructions: &str| -> Vec<Vec<u8>> {
        (0..8).map(|seed| run(instructions, &[], [1, 64, 256], seed).unwrap()).collect()
    };
    let right = runs(&racy.replace("BARRIER", "bar.sync 0;"));
    let expected: Vec<u8> = (0..64u32).rev().flat_map(u32::to_le_bytes).collect();
    assert!(right.iter().all(|output| output[..256] == expected));
    assert!(runs(&racy.replace("BARRIER", "")).iter().any(|output| output[..256] != expected));
}

#[test]
fn an_update_that_is_not_atomic_loses_some_in_some_order() {
    let runs = |instructions: &str| -> Vec<u32> {
        let read = |output: Vec<u8>| u32::from_le_bytes(output[..4].try_into().unwrap());
        (0..8).map(|seed| read(run(instructions, &[], [4, 32, 0], seed).unwrap())).collect()
    };
    assert_eq!(runs("atom.global.add.u32 %r2, [%rd2], 1;"), [128; 8]);
    let lost = runs("ld.global.u32 %r2, [%rd2];\nadd.s32 %r3, %r2, 1;\nst.global.u32 [%rd2], %r3;");
    assert_eq!(lost[..2], [128; 2], "one thread after the other");
    assert!(lost.iter().any(|count| *count < 128), "{lost:?}");
}

#[test]
fn text_that_was_cut_off() {
    let text =
        ".version 7.8\n.visible .entry test(\n\t.param .align 8 .b8 test_param_0[16]\n)\n{\n\tret;\n}\n";
    assert_eq!(Program::parse(text).unwrap().kernels().collect::<Vec<_>>(), ["test"]);
    for end in ["}", ";", "{", ")"] {
        let error = Program::parse(&text[..text.rfind(end).unwrap()]).err().unwrap_or_default();
        assert!(error.contains("the PTX ends within line"), "{end}: {error}");
    }
}

#[test]
fn launches_that_no_gpu_takes() {
    let program = program("").unwrap();
    let launch = Launch { kernel: "test", grid: 1, block: 32, shared_bytes: 0, argument: &[0; 16], seed: 0 };
    let run = |launch: &Launch<'_>| program.run(&mut Memory::global(), launch);
    assert_eq!(run(&launch), Ok(()));
    let wrong = [
        (Launch { kernel: "other", ..launch }, "there is no kernel other"),
        (Launch { argument: &[0; 8], ..launch }, "takes 16 bytes of arguments, not 8"),
        (Launch { block: 1025, ..launch }, "1 blocks of 1025 threads"),
        (Launch { grid: 0, ..launch }, "0 blocks of 32 threads"),
        (Launch { shared_bytes: 49137, ..launch }, "49153 bytes of shared memory"),
    ];
    for (launch, said) in wrong {
        let error = run(&launch).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn ptx_that_is_not_known_is_an_error_with_its_line() {
    let unknown = [
        "add.f32 %f1, %f2, %f3;", // may be contracted
        "add.rn.ftz.f32 %f1, %f2, %f3;",
        "mul.hi.u32 %r2, %r1, %r1;",
        "ld.global.s8 %rs1, [%rd1];",
        "ld.global.nc.u32 %r2, [%rd1];",
        "bar.sync 1;",
        "bar.sync 0, 32;",
        "shfl.sync.down.b32 %r2|%p1, %r1, 1, 31, -1;",
        "activemask.b32 %r2;",
        "mov.u32 %r2, %laneid;",
        "add.s32 %r2, %r1;",
        "add.s32 %r99, %r1, 1;",
        "mov.u64 %rd3, elsewhere;",
        "bra $nowhere;",
        "@%p99 bra $L;\n$L:",
        "ld.global.v2.u32 {%r2, %r3, %r4}, [%rd1];",
        ".const .b32 number;",
        "call.uni own, (own);",
        "ld.u32 %r2, [%rd1];",
        ".local .align 8 .b8 depot[16];",
        "add.s32 %r2, %SP, 1;",
    ];
    assert!(program("").is_ok());
    for instructions in unknown {
        let error = program(instructions).err().unwrap_or_default();
        let has_line = error.starts_with("line 19 of the PTX: ");
        assert!(has_line || error.contains("nothing is at label $nowhere"), "{instructions}: {error:?}");
    }
}
