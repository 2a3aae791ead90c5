//! In-process inference: calling another model of the same server. (The Python backend calls it BLS.)
//!
//! ```text
//! Server::inference_request -> InferenceRequest -> send -> PendingResponse -> wait -> InferenceResponse
//! ```
//! Inputs are handed over with the request and stay untouched until the server's release callback, whatever
//! happens to the rest: a caller that stops waiting cancels the request and leaves its memory to that callback.

pub(crate) mod allocator;
mod pending;
mod response;

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;

pub use pending::PendingResponse;
pub use response::{InferenceResponse, ResponseTensor};

use crate::data_type::DataType;
use crate::error::{Error, Result};
use crate::memory::StableMemory;
use crate::request::{CorrelationId, Request};
use crate::server::Server;
use crate::{c_string, raw, sys};
use pending::Shared;

/// A request to another model, being filled.
pub struct InferenceRequest {
    raw: NonNull<sys::TRITONSERVER_InferenceRequest>,
    server: Server,
    model: String,
    inputs: Vec<Box<dyn StableMemory>>,
    trace: Option<NonNull<sys::TRITONSERVER_InferenceTrace>>,
    /// Once sent, the release callback deletes it.
    sent: bool,
}

// SAFETY: an unsent request is used by one thread at a time, and the server does not mind which.
unsafe impl Send for InferenceRequest {}

impl InferenceRequest {
    pub(crate) fn new(server: &Server, model: &str, version: i64) -> Result<Self> {
        let name = c_string(model)?;
        // SAFETY: a live server; the name is NUL-terminated and copied.
        let raw = unsafe { raw::inference_new(server.as_raw(), name.as_ptr(), version) }?;
        let raw = NonNull::new(raw).ok_or_else(|| Error::internal("the server made no request"))?;
        let (inputs, model) = (Vec::new(), model.to_owned());
        Ok(Self { raw, server: server.clone(), model, inputs, trace: None, sent: false })
    }

    /// The model it goes to.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Takes over what ties this call to the request it serves: id, correlation id, sequence flags, timeout,
    /// and a child of its trace.
    pub fn inherit(&mut self, parent: &Request) -> Result<()> {
        let raw = self.raw.as_ptr();
        let id = c_string(&parent.id()?)?;
        // SAFETY: a live, unsent request; strings are NUL-terminated and copied.
        unsafe {
            raw::inference_set_id(raw, id.as_ptr())?;
            match parent.correlation_id()? {
                CorrelationId::Number(id) => raw::inference_set_correlation_id(raw, id)?,
                CorrelationId::Text(id) => {
                    raw::inference_set_correlation_id_string(raw, c_string(&id)?.as_ptr())?;
                }
            }
            raw::inference_set_flags(raw, parent.flags()?)?;
            raw::inference_set_timeout(raw, parent.timeout_us()?)?;
            // Not traced, or a server that cannot trace children: the call goes on without one.
            let trace = raw::request_trace(parent.as_raw()).unwrap_or(std::ptr::null_mut());
            if !trace.is_null() && self.trace.is_none() {
                self.trace = raw::trace_spawn_child(trace).ok().and_then(NonNull::new);
            }
        }
        Ok(())
    }

    /// Adds an input; its memory is the request's until the server is done with it.
    pub fn input(
        &mut self,
        name: &str,
        data_type: DataType,
        shape: &[i64],
        memory: impl StableMemory + 'static,
    ) -> Result<()> {
        let text = c_string(name)?;
        let (memory_type, id) = memory.kind().to_raw();
        // SAFETY: a live, unsent request; the memory stays until the release callback (see `StableMemory`).
        unsafe {
            let (raw, dims) = (self.raw.as_ptr(), shape.len() as u64);
            raw::inference_add_input(raw, text.as_ptr(), data_type.to_raw(), shape.as_ptr(), dims)?;
            let base = memory.as_ptr().cast();
            raw::inference_append_input_data(raw, text.as_ptr(), base, memory.byte_size(), memory_type, id)?;
        }
        self.inputs.push(Box::new(memory));
        Ok(())
    }

    /// Asks for an output. A request that asks for none gets all.
    pub fn request_output(&mut self, name: &str) -> Result<()> {
        let name: CString = c_string(name)?;
        // SAFETY: a live, unsent request; the name is NUL-terminated and copied.
        unsafe { raw::inference_add_requested_output(self.raw.as_ptr(), name.as_ptr()) }
    }

    /// Sends it. The answer comes on a thread of the server's and waits in what this returns.
    pub fn send(mut self) -> Result<PendingResponse> {
        let allocator = self.server.allocator().clone();
        let shared = Shared::new(self.raw, std::mem::take(&mut self.inputs), allocator.clone());
        // One reference each for the two callbacks; they give them back when the server calls them for the last time.
        let for_release = Arc::into_raw(shared.clone()).cast_mut().cast();
        let for_response = Arc::into_raw(shared.clone()).cast_mut().cast();
        let raw = self.raw.as_ptr();
        // SAFETY: a live, unsent request with its inputs in `shared`; the callbacks keep the ABI's contract and
        // get a reference each. Where the server does not take the request over it calls neither of them.
        let sent = unsafe {
            raw::inference_set_release_callback(raw, Some(pending::on_release), for_release)
                .and_then(|()| {
                    let callback: sys::TRITONSERVER_InferenceResponseCompleteFn_t =
                        Some(pending::on_response);
                    let pool = allocator.user();
                    raw::inference_set_response_callback(
                        raw,
                        allocator.as_raw(),
                        pool,
                        callback,
                        for_response,
                    )
                })
                .and_then(|()| {
                    // By the ABI the trace is the server's with this call, also where the call fails. (Where it fails
                    // early the server forgets the trace: one is lost then, which beats freeing one twice.)
                    let trace = self.trace.take().map_or(std::ptr::null_mut(), NonNull::as_ptr);
                    raw::server_infer_async(self.server.as_raw(), raw, trace)
                })
        };
        if let Err(e) = sent {
            // The request is deleted before its inputs go: this value's drop does it in that order.
            self.inputs = shared.disown();
            // SAFETY: the references made above, which no callback will use.
            unsafe {
                drop(Arc::from_raw(for_release.cast_const().cast::<Shared>()));
                drop(Arc::from_raw(for_response.cast_const().cast::<Shared>()));
            }
            return Err(e);
        }
        self.sent = true;
        Ok(PendingResponse::new(shared, std::mem::take(&mut self.model)))
    }
}

impl Drop for InferenceRequest {
    fn drop(&mut self) {
        // SAFETY: while it is unsent the request is ours, and so is a trace that is still here.
        unsafe {
            if !self.sent {
                let _ = raw::inference_delete(self.raw.as_ptr());
            }
            if let Some(trace) = self.trace {
                let _ = raw::trace_delete(trace.as_ptr());
            }
        }
    }
}
