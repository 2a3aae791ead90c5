//! Spleen segmentation as a native backend for NVIDIA Triton Inference Server: one CT volume in, a spleen mask and
//! its contour out. The network is another model of the same server.

mod answer;
mod backend;
mod bridge;
pub mod config;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod interface;
pub mod native;
pub mod pipeline;
pub mod sampling;
mod segmenter;
mod timed;
pub mod volume;

use backend::{SpleenInstance, SpleenModel};

triton_backend_api::export_backend!(SpleenModel, concurrent SpleenInstance);
