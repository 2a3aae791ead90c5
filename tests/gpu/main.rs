//! Instances on a GPU, on the emulated driver and the fake host: where memory lies, what fails, what is left.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;
mod failing;
mod loading;
mod native;
mod placement;
mod requests;
