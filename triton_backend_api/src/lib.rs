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
//! Whole backends of some 50 lines are in the package's `examples`: `identity`, `add_sub`, `bls_chain`, `decoupled`, `threads`.
//! [`from_python`] maps `model.py` to this crate, [`safety`] says what it promises.
//!
//! # The life of a backend
//! 1. **Build.** `crate-type = ["cdylib"]`, and a library called `triton_NAME`: cargo makes `libtriton_NAME.so`, which exports the
//!    `TRITONBACKEND_*` functions of [`export_backend!`] and nothing else. It goes into `NAME/` of the server's backends
//!    directory. The `TRITON*` calls stay undefined in it: the server provides them.
//! 2. **Load.** With the first model whose configuration says `backend: "NAME"` the server loads the library and compares
//!    versions: the backend API's major version must be 1, the minor at least 17. An older server is told both versions.
//! 3. **Complete.** [`Model::auto_complete`] may fill in what a configuration leaves out, before anything is checked.
//! 4. **Model.** [`Model::load`] reads configuration, parameters and files, once for each version that is served. Its error
//!    refuses the load, and its text is what the operator reads.
//! 5. **Instances.** [`Instance::create`] (or [`ConcurrentInstance::create`]) once for each instance of the configuration's
//!    `instance_group`, with its kind and device. Instances share the model by reference.
//! 6. **Execute.** The server hands over one request or a batch of them. An [`Instance`] answers while the server waits:
//!    [`Instance::infer`] request by request, or [`Instance::execute`] all at once. A [`ConcurrentInstance`] takes requests
//!    over: Execute returns at once, and up to [`ConcurrentInstance::max_in_flight`] are worked on.
//! 7. **Answer.** Outputs are written where the client wants them. The glue reports the statistics and then sends, so
//!    that who has an answer finds itself counted; then it releases the request. `Err` and panics answer their own request.
//! 8. **Unload.** When nothing is in flight the instances are dropped and then the model, each once, also where loading failed
//!    half-way. Loading again starts at 4. The library stays mapped until the process ends.
//!
//! # The map
//! Three levels, each using only the one below: [`sys`] (the C ABI), `raw` (a `Result` a call), and the safe
//! types here, one noun of Triton's a file.
//!
//! | what you need | where |
//! |---|---|
//! | configuration, parameters, files, the server | [`ModelContext`], [`ModelConfig`], [`Server`] |
//! | kind and device of an instance | [`InstanceContext`] |
//! | what was asked | [`Request`], [`Input`], [`ByteStrings`] |
//! | the answer | [`Reply`], [`Output`], [`Error`] |
//! | several requests at once | [`Batch`], [`Concatenation`]; [`OwnedRequest`] and [`OwnedReply`] |
//! | several responses to a request | [`Reply::send_more`], [`ResponseStream`] |
//! | other models of the server | [`Server::inference_request`], [`bls`] |
//! | memory: where it lies, pools, GPU addresses | [`MemoryKind`], [`Buffer`], [`HostPool`], [`DeviceSlice`] |
//! | the log, custom metrics | [`log!`], [`mod@log`], [`metrics`] |
//!
//! Tests without a server: the package `triton_fake_host`.
//!
//! # Coverage
//! What the ABI offers a backend, where it is here, and the file of `tests/` that shows it. That every call may fail: `faults`,
//! `faults_server`, `faults_streams`.
//!
//! | of the ABI | here | tests |
//! |---|---|---|
//! | entry points, `ModelInstanceReady` too | [`export_backend!`] | `exports`, `names` |
//! | version handshake; younger calls bound at run time | `raw::late`, private | `loading`, `metrics`, `parameters`, `response_statistics` |
//! | backend: state, configuration, artifacts, execution policy, attributes | [`Backend`], [`BackendContext`], [`Model::preferred_instances`] | `backend`, `loading` |
//! | model: configuration typed and raw, parameters, place and version | [`ModelContext`], [`ModelConfig`] | `loading`; units of `config` |
//! | auto-completion | [`Model::auto_complete`] | `loading` |
//! | instance: kind, device, host policy, profiles, secondary devices | [`InstanceContext`] | `loading`, `server_queries` |
//! | state of models and instances, freed once | [`Model`], [`Instance`], [`ConcurrentInstance`] | `loading`, `taking_over`, `faults` |
//! | request: id, correlation id, timeout, cancellation, requested outputs | [`Request`] | `requests` |
//! | flags and parameters of a request | [`RequestFlags`], [`Parameter`] | `parameters` |
//! | inputs, every buffer, for a host policy, host, pinned, GPU | [`Input`], [`Buffer`], [`DeviceSlice`] | `requests`, `views` |
//! | BYTES | [`ByteStrings`], [`Reply::output_byte_strings`] | `requests`; units of `byte_strings` |
//! | outputs where the client wants them; parameters; errors with every code | [`Output`], [`Reply`], [`ErrorCode`] | `requests`, `views`, `parameters`, `rules_of_execute` |
//! | response factories: several responses, cancellation | [`Reply::send_more`], [`ResponseStream`] | `streams` |
//! | batches | [`Batch`], [`Concatenation`] | `batches`, `statistics`, `rules_of_execute` |
//! | requests kept after Execute | [`OwnedRequest`], [`OwnedReply`] | `taking_over` |
//! | in-process calls: inheritance, version, priority, child trace | [`bls::InferenceRequest`] | `in_process`, `parameters` |
//! | ... many in flight, timeout, cancellation passed on | [`bls::PendingResponse`] | `in_process_waiting` |
//! | ... memory of inputs and outputs | [`StableMemory`], [`OutputMemory`], [`bls::InferenceRequest::place_outputs`] | `in_process_memory` |
//! | ... several responses | [`bls::PendingResponse::next`] | `in_process_streams` |
//! | memory manager | [`MemoryManager`], [`ServerMemory`] | `memory` |
//! | liveness, readiness, metadata, statistics, index of models | [`Server`] | `server_queries`, `in_process` |
//! | statistics of a request and of a batch | reported by the glue; [`Reply::mark_compute_start`], [`Execution`] | `statistics` |
//! | statistics of a response (backend API 1.19) | reported by the glue for decoupled models | `response_statistics` |
//! | counters, gauges, histograms | [`metrics`] | `metrics` |
//! | log, its levels, file and line | [`log!`], [`mod@log`] | `loading` |
//!
//! Not offered:
//! - the priority of a request: the ABI has no call that reads it, so an in-process call has the one that its author sets;
//! - activities of the author's own in a trace, and what a trace says of itself;
//! - state of sequences that the server keeps (`TRITONBACKEND_State*`);
//! - attributes of output buffers (CUDA IPC handles), and where an output would lie before it is made;
//! - raw inputs and inputs for a host policy of in-process calls;
//! - reports of memory usage, batching strategies (`TRITONBACKEND_ModelBatch*`), loading and unloading models.

#![deny(missing_docs)]

// Both pages are read outside this documentation too, where links to items lead nowhere: they are listed below them.
#[doc = include_str!("../docs/from-python.md")]
///
/// # The items named here
/// [`Model`], [`Instance`], [`ModelContext::config`], [`ModelConfig::json`], [`ModelContext::name`],
/// [`ModelContext::version`], [`ModelContext::repository`], [`ModelContext::version_directory`],
/// [`InstanceContext`], [`Model::auto_complete`], [`ModelContext::path`], [`Input::shape`],
/// [`Input::data_type`], [`Input::byte_strings`], [`Input::buffers`], [`Input::device_slice`],
/// [`Output::write`], [`Output::slice_mut`], [`Reply::output_byte_strings`], [`Request::requested_outputs`],
/// [`Request::parameters`], [`Request::parameter`], [`Request::is_cancelled`], [`Reply::set_parameter`],
/// [`bls`], [`Server`], [`Instance::execute`], [`Batch::entries`], [`Entry::fail`],
/// [`OwnedReply::into_stream`], [`ConcurrentInstance`], [`metrics`], [`Reply::mark_compute_start`],
/// [`Reply::mark_compute_end`], [`Server::model_is_ready`].
pub mod from_python {}

#[doc = include_str!("../docs/safety.md")]
///
/// # The items named here
/// [`Batch`], [`OwnedRequest`], [`Reply`], [`OwnedReply`], [`Input`], [`Request`], [`Element`], [`Output`],
/// [`StableMemory`], [`ServerMemory`], [`metrics`], [`Backend`], [`Instance`], [`ConcurrentInstance`].
pub mod safety {}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

// Unit tests need the server's symbols to link; a production build has them undefined.
#[cfg(test)]
use triton_fake_host as _;

mod backend;
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
mod message;
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
mod sync;
pub mod sys;

pub use backend::{Artifacts, Backend, BackendContext, ExecutionPolicy, InstanceGroup};
pub use batch::{Batch, Entry, Execution};
pub use byte_strings::ByteStrings;
pub use concatenation::Concatenation;
pub use config::{InstanceGroupConfig, ModelConfig, TensorConfig};
pub use data_type::{Bool, DataType, Element};
pub use device::{DeviceSlice, DeviceSliceMut};
pub use error::{Error, ErrorCode, Result};
pub use input::Input;
pub use instance::{
    ConcurrentInstance, HostPolicy, Instance, InstanceContext, InstanceKind, SecondaryDevice,
};
pub use memory::{
    Buffer, HostMemory, HostPool, MemoryKind, MemoryManager, OutputMemory, ServerMemory, StableMemory,
};
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
