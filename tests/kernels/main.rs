//! The CUDA kernels, compiled for the host, against the steps on the CPU: in several block shapes and orders of threads and
//! blocks, since a result that depends on the order is a race.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

// Defines the server's symbols: nothing here calls them, and the executable has to link.
use triton_fake_host as _;

mod arguments;
mod device;
mod host;
mod images;
mod mistakes;
mod patterns;
mod properties;
mod sanitizers;
