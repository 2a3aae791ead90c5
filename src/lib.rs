//! Spleen segmentation as a native Triton backend.

pub mod config;
pub mod cpu;
pub mod pipeline;
pub mod volume;
