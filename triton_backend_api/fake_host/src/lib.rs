//! A server for tests: it defines the `TRITON*` symbols that Triton provides in production, so that test
//! executables link and run a backend without a server.
//!
//! Every object has its entry in a ledger: made, handed over, ended. A second end, a use after the end, an answer
//! sent twice, a release before the answer, and whatever is left at the end are noted, and [`FakeHost::check`]
//! fails the test for them. Any call that can fail can be made to: [`FakeHost::fail_next`].
//!
//! A test that only needs the symbols says `use triton_fake_host as _;`. One that drives a backend:
//!
//! ```no_run
//! # use triton_fake_host::*;
//! # fn test<R: triton_backend_api::glue::Runner>() -> Result<(), HostError> {
//! let host = FakeHost::new();
//! let model = host.load(EntryPoints::of::<R>(), ModelSpec::new("echo", serde_json::json!({})))?;
//! let input = TestInput::fp32("INPUT0", &[2], &[1.0, 2.0]).split(&[3]);
//! let answers = model.execute([TestRequest::new([input])]).wait();
//! assert_eq!(answers[0].result()?.outputs.len(), 1);
//! model.unload();
//! host.check();
//! # Ok(())
//! # }
//! ```
//!
//! What it does where Triton's headers leave room is what Triton's core does.

#![allow(clippy::not_unsafe_ptr_arg_deref)] // handles are numbers here: never followed, always looked up

mod allocator;
mod answer;
mod attributes;
mod backend;
mod block;
mod child;
mod entry_points;
mod error;
mod factory;
mod host;
mod inference;
mod inferred;
mod instance;
mod late;
mod library;
mod loaded;
mod log;
mod memory;
mod message;
mod metrics;
mod model;
mod names;
mod request;
mod response;
mod server;
mod state;
mod statistics;
mod table;
mod test_request;
mod trace;
mod unsupported;

pub use answer::{Answer, OutputTensor, ParameterValue, Response, Statistics};
pub use backend::{BackendAttributes, BackendSpec, LoadedBackend, PreferredGroup};
pub use block::GpuMemory;
pub use child::{ChildCall, ChildInput, ChildModel, ChildOutput};
pub use entry_points::EntryPoints;
pub use error::HostError;
pub use host::FakeHost;
pub use instance::BatchStatistics;
pub use loaded::{Execution, LoadedModel, ModelSpec};
pub use log::LogLine;
pub use metrics::ServedMetric;
pub use statistics::ResponseStatistics;
pub use test_request::{Correlation, TestInput, TestRequest};
/// The ABI's types and values.
pub use triton_backend_api::sys as abi;
