//! The CUDA kernels against the steps on the CPU, on any [`machine`]. Compiled for the host they run in several block shapes
//! and orders of threads and blocks, since a result that depends on the order is a race.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

// Defines the server's symbols: nothing here calls them, and the executable has to link.
use triton_fake_host as _;

mod arguments;
mod cases;
mod driver;
mod emulated;
mod host;
mod images;
mod machine;
mod mistakes;
mod on_host;
mod orders;
mod patterns;
mod properties;
mod ptx;
mod sanitizers;
mod steps;
