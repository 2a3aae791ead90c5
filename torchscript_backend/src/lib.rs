//! TorchScript models on Triton: a backend that takes the place of the server's own PyTorch backend where it has none.
//!
//! An execution goes from `instance` through `view` and `batching` (requests to arguments), `torch` and `libtorch` (the call) to
//! `results` (replies); `device` decides where, `cuda` copies where no libtorch for GPUs is needed. What it needs to know is read once, by `model`: `config`, `signature`, `binding` of the two, and
//! `input_use` (whether the network may have the client's memory). `offline` is a network without a server.

// A program that only calls a network needs a part of what the backend does.
#![cfg_attr(not(feature = "backend"), allow(dead_code))]

#[cfg(feature = "backend")]
mod batching;
#[cfg(feature = "backend")]
mod binding;
mod config;
#[cfg(feature = "backend")]
#[path = "../../src/cuda/copies.rs"]
mod cuda;
mod device;
#[cfg(test)]
#[cfg(feature = "backend")]
mod execution_tests;
#[cfg(feature = "backend")]
mod input_use;
#[cfg(feature = "backend")]
mod instance;
#[cfg(feature = "backend")]
mod kinds;
mod libtorch;
#[cfg(feature = "backend")]
mod model;
pub mod offline;
#[cfg(feature = "backend")]
mod results;
#[cfg(feature = "backend")]
mod signature;
#[cfg(test)]
mod testing;
mod torch;
mod torch_error;
#[cfg(feature = "backend")]
mod view;

#[cfg(feature = "backend")]
use instance::TorchInstance;
#[cfg(feature = "backend")]
use model::TorchModel;

#[cfg(feature = "backend")]
triton_backend_api::export_backend!(TorchModel, TorchInstance);
