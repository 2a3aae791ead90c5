//! TorchScript models on Triton: a backend that takes the place of the server's own PyTorch backend where it has none.
//!
//! An execution goes from `instance` through `batching` (requests to arguments), `torch` and `libtorch` (the call) to
//! `results` (replies). What it needs to know is read once, by `model`: `config`, `signature`, `binding` of the two, and
//! `input_use` (whether the network may have the client's memory).

mod batching;
mod binding;
mod config;
#[cfg(test)]
mod execution_tests;
mod input_use;
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
