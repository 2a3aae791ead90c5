//! The steps on an NVIDIA GPU. [`kernels`] are the device's code and [`steps`] what is started in which order; both know
//! nothing of the driver.

mod bridge;
mod buffers;
mod context;
mod copier;
mod device;
mod direct;
mod driver;
mod error;
mod gpu;
pub mod images;
pub mod kernels;
mod memory;
mod module;
pub mod queue;
mod session;
pub mod steps;
mod stream;
#[cfg(test)]
pub(crate) mod testing;
mod transfer;

pub use buffers::{Input, Labels, Logits, Output, Source, Tensor};
pub use copier::Copier;
pub use error::CudaError;
pub use gpu::Gpu;
pub use memory::DeviceMemory;
pub use module::Code;
pub use session::Session;
