//! Write a backend for NVIDIA Triton Inference Server in safe Rust.
//!
//! A backend is a shared library that the server loads. Its author writes a [`Model`] and either an
//! [`Instance`], which answers while the server waits, or a [`ConcurrentInstance`], which takes requests over
//! and has several in flight; [`export_backend!`] does the rest:
//!
//! ```no_run
//! use triton_backend_api::*;
//!
//! struct Echo;
//! impl Model for Echo {
//!     fn load(_: &ModelContext) -> Result<Self> {
//!         Ok(Self)
//!     }
//! }
//!
//! struct EchoInstance;
//! impl Instance for EchoInstance {
//!     type Model = Echo;
//!     fn create(_: &Echo, _: &InstanceContext) -> Result<Self> {
//!         Ok(Self)
//!     }
//!     fn infer(&mut self, _: &Echo, request: &Request, reply: &mut Reply) -> Result<()> {
//!         let input = request.input("INPUT0")?;
//!         let bytes = input.bytes()?;
//!         let mut output = reply.output("OUTPUT0", input.data_type(), input.shape())?;
//!         output.bytes_mut()?.copy_from_slice(&bytes);
//!         Ok(())
//!     }
//! }
//!
//! export_backend!(Echo, EchoInstance);
//! # fn main() {}
//! ```
//!
//! Three levels, each using only the one below: [`sys`] (the C ABI), `raw` (a `Result` a call), and the safe
//! types here, one noun of Triton's a file. The glue times, reports statistics, answers and releases: an author
//! cannot leak a request, answer twice, forget an answer, or unwind into C.
//!
//! `TRITON*` symbols stay undefined in the library: the server that loads it provides them.

#![deny(missing_docs)]

// Unit tests need the server's symbols to link; a production build has them undefined.
#[cfg(test)]
use triton_fake_host as _;

mod batch;
pub mod bls;
mod byte_strings;
mod concatenation;
mod config;
mod data_type;
mod device;
mod error;
#[doc(hidden)]
pub mod glue;
mod input;
mod instance;
#[cfg(doctest)]
mod invariants;
pub mod log;
mod memory;
pub mod metrics;
mod model;
mod output;
mod owned;
mod parameter;
mod raw;
mod reply;
mod request;
mod responder;
mod server;
mod statistics;
mod stream;
pub mod sys;

pub use batch::{Batch, Entry, Execution};
pub use byte_strings::ByteStrings;
pub use concatenation::Concatenation;
pub use config::{ModelConfig, TensorConfig};
pub use data_type::{Bool, DataType, Element};
pub use device::{DeviceSlice, DeviceSliceMut};
pub use error::{Error, ErrorCode, Result};
pub use input::Input;
pub use instance::{ConcurrentInstance, Instance, InstanceContext, InstanceKind};
pub use memory::{Buffer, HostMemory, HostPool, MemoryKind, StableMemory};
pub use model::{Model, ModelContext};
pub use output::Output;
pub use owned::{OwnedReply, OwnedRequest};
pub use parameter::Parameter;
pub use reply::Reply;
pub use request::{CorrelationId, Request, RequestFlags};
pub use server::Server;
pub use stream::ResponseStream;

/// A string for the C ABI; one that holds a NUL is refused.
pub(crate) fn c_string(text: &str) -> Result<std::ffi::CString> {
    std::ffi::CString::new(text).map_err(|_| Error::invalid_arg(format!("{text:?} holds a NUL character")))
}
