//! Small kernels around a few instructions.

use ptx_interpreter::{Launch, Memory, Program};

/// A kernel `test` with these instructions. `%rd1` is the address of the input, `%rd2` of the output, `%r1` the thread's number;
/// `memory` is the dynamic shared memory, `own` 16 bytes of static one.
pub fn program(instructions: &str) -> Result<Program, String> {
    Program::parse(&format!(
        ".version 7.8
.target sm_70
.address_size 64
.extern .shared .align 16 .b8 memory[];
.visible .entry test(
	.param .align 8 .b8 test_param_0[16]
)
{{
	.shared .align 8 .b8 	own[16];
	.reg .pred 	%p<10>;
	.reg .b16 	%rs<10>;
	.reg .b32 	%r<20>;
	.reg .f32 	%f<10>;
	.reg .f64 	%fd<10>;
	.reg .b64 	%rd<20>;
	ld.param.u64 	%rd1, [test_param_0];
	ld.param.u64 	%rd2, [test_param_0+8];
	mov.u32 	%r1, %tid.x;
{instructions}
	ret;
}}
"
    ))
}

/// What it writes to an output of 1024 bytes, which begins with zeros in place of bytes that were not written.
pub fn run(
    instructions: &str,
    input: &[u8],
    [grid, block, shared_bytes]: [u32; 3],
    seed: u64,
) -> Result<Vec<u8>, String> {
    let mut memory = Memory::global();
    let (from, to) = (memory.holding(input, 256), memory.room(1024, 256));
    memory.fill(to, 1024, 0)?;
    let argument: Vec<u8> = [from, to].into_iter().flat_map(u64::to_le_bytes).collect();
    let launch = Launch { kernel: "test", grid, block, shared_bytes, argument: &argument, seed };
    program(instructions)?.run(&mut memory, &launch)?;
    memory.read(to, 1024)
}
