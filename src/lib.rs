//! Spleen segmentation as a native backend for NVIDIA Triton Inference Server: one CT volume in, a spleen mask and
//! its contour out. The network is another model of the same server.

#[cfg(feature = "backend")]
mod answer;
#[cfg(feature = "backend")]
mod backend;
#[cfg(feature = "backend")]
mod bridge;
pub mod config;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "backend")]
mod interface;
#[cfg(feature = "backend")]
mod metrics;
pub mod native;
pub mod pipeline;
pub mod sampling;
#[cfg(feature = "backend")]
mod segmenter;
#[cfg(feature = "backend")]
mod shadow;
#[cfg(feature = "backend")]
mod timed;
pub mod volume;
#[cfg(feature = "backend")]
mod warm_up;

#[cfg(feature = "backend")]
use backend::{SpleenInstance, SpleenModel};

#[cfg(feature = "backend")]
triton_backend_api::export_backend!(SpleenModel, concurrent SpleenInstance);

#[cfg(test)]
use triton_fake_host as _; // the server's functions, so that tests link
