//! Write a backend for NVIDIA Triton Inference Server in safe Rust.

mod error;

pub use error::{Error, ErrorCode, Result};
