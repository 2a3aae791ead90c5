//! Runs PTX on the CPU, so that tests see what NVRTC made of the kernels: rounding, the layout of structures, alignment, shared
//! memory, calls, exchanges. It knows the instructions that the kernels' PTX has and refuses all others. It shows nothing of
//! what drivers make of PTX, or of the machine code that is embedded beside it. For tests only.
//!
//! An error, with the line of the PTX, the block and the thread, are accesses outside of memory or at an address that is not a
//! multiple of their size, reads of registers and memory that nobody has written, divisions by 0, barriers that not all threads
//! of the block reach, exchanges that not all lanes of the mask take part in, and threads that do not end.
#![forbid(unsafe_code)]

mod arithmetic;
mod decode;
mod grid;
mod memory;
mod parse;
mod program;
mod thread;

pub use grid::Launch;
pub use memory::Memory;
pub use program::Program;
