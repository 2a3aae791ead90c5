//! Instances that meet memory of GPUs, on the emulated driver and the fake host: where memory lies, what fails, what is left.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;
mod failing;
mod loading;
mod native;
mod on_cpu;
mod placement;
mod requests;
