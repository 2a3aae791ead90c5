//! A CUDA driver for tests, without a GPU: the part of libcuda that the backend uses, running the kernels' own source
//! compiled for the host.
//!
//! Work in a stream runs only when something waits for it, so what is read or overwritten too early is wrong for
//! certain. A ledger knows every context, allocation, stream and event: a leak, a use after the end, an address of another
//! GPU, parameters of the wrong size and a context left current are noted. Any call can be made to fail, and any
//! kernel when it runs.
//!
//! It is a shared object that tests load before the backend looks for `libcuda.so.1`: [`FakeDriver`]. It agrees with its
//! author about what the real driver does; only a run on a GPU shows that.

#![allow(clippy::missing_safety_doc)] // the driver's documentation says what each call asks for
#![allow(clippy::panic)] // for tests: what the driver finds wrong fails the test

mod abi;
mod client;
mod control;
mod image;
mod kernels;
mod memory;
mod state;
mod work;

pub use client::{FakeDriver, Foreign, allocate, free, load, memory, read, violations, write};
