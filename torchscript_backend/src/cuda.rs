//! Copies between the host and GPUs, without libtorch's part for GPUs: files of spleen_seg's backend. That package has entry
//! points for Triton of its own, of which there may be one set in a library, so it is no dependency.
#![allow(dead_code)] // not all of them is used here

#[path = "../../src/cuda/context.rs"]
mod context;
#[path = "../../src/cuda/copier.rs"]
mod copier;
#[path = "../../src/cuda/driver.rs"]
mod driver;
#[path = "../../src/cuda/error.rs"]
mod error;
#[path = "../../src/cuda/stream.rs"]
mod stream;

pub use copier::Copier;
