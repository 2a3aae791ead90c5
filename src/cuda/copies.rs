//! Copies between the host and GPUs, for the other backends, each of which compiles this as its module `cuda`. The package
//! `triton-spleenseg` has entry points for Triton of its own, of which there may be one set in a library, so it is no dependency.
#![allow(dead_code)] // not all of them is used there

mod context;
mod copier;
mod driver;
mod error;
mod stream;

pub use copier::Copier;
