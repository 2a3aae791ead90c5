//! TorchScript models on Triton: a backend that takes the place of the server's own PyTorch backend where it has none.
//!
//! An execution goes from `instance` through `batching` (requests to arguments), `torch` and `libtorch` (the call) to
//! `results` (replies). What it needs to know is read once, by `model`: `config`, `signature`, and `binding` of the two.

mod batching;
mod binding;
mod config;
#[cfg(test)]
mod execution_tests;
mod instance;
mod kinds;
mod libtorch;
mod model;
mod results;
mod signature;
#[cfg(test)]
mod testing;
mod torch;
mod torch_error;

use instance::TorchInstance;
use model::TorchModel;

triton_backend_api::export_backend!(TorchModel, TorchInstance);
