//! In-process inference: calling another model of the same server. (The Python backend calls it BLS.)
//!
//! ```text
//! Server::inference_request -> InferenceRequest -> send -> PendingResponse -> wait -> InferenceResponse
//! ```
//! Inputs are handed over with the request and stay untouched until the server's release callback, whatever
//! happens to the rest: a caller that stops waiting cancels the request and leaves its memory to that callback.

pub(crate) mod allocator;
mod handover;
mod pending;
mod response;

use std::ffi::{CStr, CString};
use std::ptr::NonNull;
use std::sync::Arc;

pub use pending::PendingResponse;
pub use response::{InferenceResponse, ResponseTensor};

use crate::data_type::DataType;
use crate::error::{Error, Result};
use crate::memory::{MemoryKind, MemoryManager, OutputMemory, StableMemory};
use crate::parameter::{Parameter, Setters};
use crate::request::{CorrelationId, Request, RequestFlags};
use crate::server::Server;
use crate::{c_string, raw, sys};
use allocator::{Placement, Wish};
use pending::Shared;

/// A request to another model, being filled.
pub struct InferenceRequest {
    raw: NonNull<sys::TRITONSERVER_InferenceRequest>,
    server: Server,
    model: String,
    inputs: Vec<Box<dyn StableMemory>>,
    trace: Option<NonNull<sys::TRITONSERVER_InferenceTrace>>,
    /// The caller's memory for the outputs, ..
    own: Option<Arc<dyn OutputMemory>>,
    /// .. and memory of the server's; `None` is this model's host memory.
    wish: Option<(MemoryManager, Wish)>,
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
        let (server, model) = (server.clone(), model.to_owned());
        Ok(Self { raw, server, model, inputs: Vec::new(), trace: None, own: None, wish: None, sent: false })
    }

    /// The model it goes to.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Takes over what ties this call to the request it serves: id, correlation id, flags, timeout, and a child of its
    /// trace. Not its parameters, see [`InferenceRequest::forward_parameters`], nor its priority, which the backend API
    /// does not tell. Cancelling is the caller's: see [`PendingResponse::wait`].
    pub fn inherit(&mut self, parent: &Request) -> Result<()> {
        self.set_id(&parent.id()?)?;
        self.set_correlation_id(&parent.correlation_id()?)?;
        self.set_flags(parent.flags()?)?;
        self.set_timeout_us(parent.timeout_us()?)?;
        // SAFETY: a live request and its trace. Not traced, or a server that cannot trace children: the call goes on
        // without one.
        unsafe {
            let trace = raw::request_trace(parent.as_raw()).unwrap_or(std::ptr::null_mut());
            if !trace.is_null() && self.trace.is_none() {
                self.trace = raw::trace_spawn_child(trace).ok().and_then(NonNull::new);
            }
        }
        Ok(())
    }

    /// Sets the id that logs and traces name the call by.
    pub fn set_id(&mut self, id: &str) -> Result<()> {
        let id = c_string(id)?;
        // SAFETY: a live, unsent request; the string is NUL-terminated and copied.
        unsafe { raw::inference_set_id(self.raw.as_ptr(), id.as_ptr()) }
    }

    /// Sets which sequence the call belongs to.
    pub fn set_correlation_id(&mut self, id: &CorrelationId) -> Result<()> {
        let raw = self.raw.as_ptr();
        match id {
            // SAFETY: a live, unsent request.
            CorrelationId::Number(id) => unsafe { raw::inference_set_correlation_id(raw, *id) },
            CorrelationId::Text(id) => {
                let id = c_string(id)?;
                // SAFETY: as above; the string is NUL-terminated and copied.
                unsafe { raw::inference_set_correlation_id_string(raw, id.as_ptr()) }
            }
        }
    }

    /// Sets where in its sequence the call stands.
    pub fn set_flags(&mut self, flags: RequestFlags) -> Result<()> {
        // SAFETY: a live, unsent request.
        unsafe { raw::inference_set_flags(self.raw.as_ptr(), flags.bits()) }
    }

    /// Sets how long the call may wait in its model's queue, in microseconds, where that queue has a timeout policy;
    /// 0 for no limit. How long to wait for the answer is said in [`PendingResponse::wait`].
    pub fn set_timeout_us(&mut self, timeout_us: u64) -> Result<()> {
        // SAFETY: a live, unsent request.
        unsafe { raw::inference_set_timeout(self.raw.as_ptr(), timeout_us) }
    }

    /// Sets the priority in its model's queue, 1 being the highest; 0 is the model's default.
    pub fn set_priority(&mut self, priority: u64) -> Result<()> {
        // SAFETY: a live, unsent request.
        unsafe { raw::inference_set_priority(self.raw.as_ptr(), priority) }
    }

    /// Sets a parameter, each name once. Doubles need a server with backend API 1.18: see [`Parameter`].
    pub fn set_parameter(&mut self, name: &str, value: impl Into<Parameter>) -> Result<()> {
        value.into().set(name, &RequestSetters(self.raw.as_ptr()))
    }

    /// Sets all parameters of `parent`, as they are.
    pub fn forward_parameters(&mut self, parent: &Request) -> Result<()> {
        parent.parameters()?.into_iter().try_for_each(|(name, value)| self.set_parameter(&name, value))
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

    /// Has the outputs put into memory of this kind, from the server's pools: see
    /// [`ModelContext::memory`](crate::ModelContext::memory). Where the server has none of it now they are in host memory:
    /// [`Buffer::kind`](crate::Buffer::kind) of each says where it is. Unasked they are in host memory that this model
    /// keeps for its next calls.
    pub fn place_outputs(&mut self, memory: MemoryManager, kind: MemoryKind) {
        self.wish = Some((memory, Wish::Kind(kind)));
    }

    /// Has each output put where its model would like it, such as the GPU that computes it: then nothing is copied. What
    /// [`InferenceRequest::place_outputs`] says of memory that cannot be had goes for this too.
    pub fn place_outputs_where_made(&mut self, memory: MemoryManager) {
        self.wish = Some((memory, Wish::Models));
    }

    /// Has the outputs put into memory of the caller's. Where it gives none they go where they would without it.
    pub fn place_outputs_in(&mut self, memory: Arc<dyn OutputMemory>) {
        self.own = Some(memory);
    }

    /// Sends it. The answer comes on a thread of the server's and waits in what this returns.
    pub fn send(mut self) -> Result<PendingResponse> {
        let allocator = self.server.allocator().clone();
        let placement = Placement { pool: allocator.pool().clone(), own: self.own.take(), wish: self.wish };
        let shared = Shared::new(self.raw, std::mem::take(&mut self.inputs), allocator.clone(), placement);
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
                    let placement = shared.placement();
                    raw::inference_set_response_callback(
                        raw,
                        allocator.as_raw(),
                        placement,
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

/// The calls that set a parameter of an unsent request.
struct RequestSetters(*mut sys::TRITONSERVER_InferenceRequest);

impl Setters for RequestSetters {
    fn string(&self, name: &CStr, value: &CStr) -> Result<()> {
        // SAFETY: a live, unsent request; the strings are copied.
        unsafe { raw::inference_set_string(self.0, name.as_ptr(), value.as_ptr()) }
    }
    fn int(&self, name: &CStr, value: i64) -> Result<()> {
        // SAFETY: as above.
        unsafe { raw::inference_set_int(self.0, name.as_ptr(), value) }
    }
    fn bool(&self, name: &CStr, value: bool) -> Result<()> {
        // SAFETY: as above.
        unsafe { raw::inference_set_bool(self.0, name.as_ptr(), value) }
    }
    fn double(&self, name: &CStr, value: f64) -> Result<()> {
        // SAFETY: as above.
        unsafe { raw::inference_set_double(self.0, name.as_ptr(), value) }
    }
}
