//! The answer to a request.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::data_type::DataType;
use crate::error::{Error, ErrorCode, Result};
use crate::memory::MemoryKind;
use crate::output::Output;
use crate::owned::Exchange;
use crate::statistics::{Timeline, now_ns};
use crate::{c_string, raw, sys};

/// The one response to one request: outputs and parameters go in here, and it is sent exactly once.
///
/// Whoever implements [`Instance::infer`](crate::Instance::infer) only fills it; returning sends it.
pub struct Reply {
    /// None once it is sent.
    response: Option<NonNull<sys::TRITONBACKEND_Response>>,
    request: NonNull<sys::TRITONBACKEND_Request>,
    instance: NonNull<sys::TRITONBACKEND_ModelInstance>,
    timeline: Timeline,
    batch_size: u64,
    /// Whether this request is an execution of its own in the statistics, or part of a batch that is one.
    own_execution: bool,
    /// What releases the request, where this reply outlives Execute. Dropped after the answer is sent.
    exchange: Option<Arc<Exchange>>,
}

// SAFETY: the server's objects behind the pointers have no tie to a thread, and a reply is used by one at a time.
unsafe impl Send for Reply {}

/// The value of a response parameter: what Triton has, and nothing else.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    /// A string.
    String(String),
    /// An integer.
    Int(i64),
    /// A truth value.
    Bool(bool),
}

impl From<&str> for Parameter {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}
impl From<String> for Parameter {
    fn from(value: String) -> Self {
        Self::String(value)
    }
}
impl From<i64> for Parameter {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}
impl From<bool> for Parameter {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl Reply {
    /// A new response to `request`.
    ///
    /// # Safety
    /// `request` and `instance` are the server's and live until this reply is dropped.
    pub(crate) unsafe fn new(
        request: NonNull<sys::TRITONBACKEND_Request>,
        instance: NonNull<sys::TRITONBACKEND_ModelInstance>,
    ) -> Result<Self> {
        // SAFETY: a live request.
        let response = unsafe { raw::response_new(request.as_ptr()) }?;
        let response =
            NonNull::new(response).ok_or_else(|| Error::internal("the server made no response"))?;
        let timeline = Timeline::start();
        let (batch_size, own_execution, exchange) = (1, true, None);
        Ok(Self {
            response: Some(response),
            request,
            instance,
            timeline,
            batch_size,
            own_execution,
            exchange,
        })
    }

    /// Holds the request until this reply is dropped.
    pub(crate) fn keep_alive(&mut self, exchange: Arc<Exchange>) {
        self.exchange = Some(exchange);
    }

    /// Parts the unanswered reply from what holds its request, so that the latter can keep it.
    pub(crate) fn orphan(mut self) -> Option<(Arc<Exchange>, Self)> {
        let exchange = self.exchange.take()?;
        Some((exchange, self))
    }

    /// Deletes the response unsent, so that the request stays the server's.
    pub(crate) fn discard(mut self) {
        if let Some(response) = self.response.take() {
            // SAFETY: ours, and never sent.
            let _ = unsafe { raw::response_delete(response.as_ptr()) };
        }
    }

    /// The execution of this request starts now.
    pub(crate) fn begin(&mut self, batch_size: u64) {
        self.timeline = Timeline::start();
        self.batch_size = batch_size;
    }

    /// The request is part of an execution that the batch reports, with these times so far.
    pub(crate) fn join(&mut self, timeline: Timeline) {
        self.timeline = timeline;
        self.own_execution = false;
    }

    fn response(&self) -> Result<NonNull<sys::TRITONBACKEND_Response>> {
        self.response.ok_or_else(|| Error::internal("the response is sent already"))
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.response.is_none()
    }

    /// Adds an output and asks for its memory, on the host where the client does not want it elsewhere.
    pub fn output(&mut self, name: &str, data_type: DataType, shape: &[i64]) -> Result<Output<'_>> {
        self.output_in(MemoryKind::Host, name, data_type, shape)
    }

    /// Adds an output and asks for its memory to be of the kind `preferred`.
    pub fn output_in(
        &mut self,
        preferred: MemoryKind,
        name: &str,
        data_type: DataType,
        shape: &[i64],
    ) -> Result<Output<'_>> {
        // SAFETY: unsent as long as the borrow lasts, since sending takes the reply.
        unsafe { Output::new(self.response()?.as_ptr(), name, data_type, shape, preferred) }
    }

    /// Sets a parameter of the response.
    pub fn set_parameter(&mut self, name: &str, value: impl Into<Parameter>) -> Result<()> {
        let (response, name) = (self.response()?.as_ptr(), c_string(name)?);
        // SAFETY: an unsent response; the strings are NUL-terminated and copied.
        unsafe {
            match value.into() {
                Parameter::String(value) => {
                    raw::response_set_string(response, name.as_ptr(), c_string(&value)?.as_ptr())
                }
                Parameter::Int(value) => raw::response_set_int(response, name.as_ptr(), value),
                Parameter::Bool(value) => raw::response_set_bool(response, name.as_ptr(), value),
            }
        }
    }

    /// The inputs are ready, the computation starts: what came before is the statistics' `compute_input`.
    pub fn mark_compute_start(&mut self) {
        self.timeline.mark_compute_start();
    }

    /// The computation is done: what comes after is the statistics' `compute_output`.
    pub fn mark_compute_end(&mut self) {
        self.timeline.mark_compute_end();
    }

    /// Reports the request's statistics and sends the response, once; later calls do nothing.
    ///
    /// Statistics come first, so that a client that has its answer finds itself counted.
    pub(crate) fn finish(&mut self, result: Result<()>) {
        self.report(result.is_ok());
        self.send(result);
    }

    /// Reports the request's statistics, unless it is answered already.
    pub(crate) fn report(&self, success: bool) {
        if self.response.is_none() {
            return;
        }
        let [start, compute_start, compute_end, end] = self.timeline.finish(now_ns());
        let (instance, request) = (self.instance.as_ptr(), self.request.as_ptr());
        // SAFETY: instance and request live (see `new`). Statistics that cannot be reported are not the client's fault.
        unsafe {
            let _ =
                raw::report_statistics(instance, request, success, start, compute_start, compute_end, end);
            if success && self.own_execution {
                let size = self.batch_size;
                let _ = raw::report_batch_statistics(instance, size, start, compute_start, compute_end, end);
            }
        }
    }

    /// Sends the response, once; later calls do nothing.
    pub(crate) fn send(&mut self, result: Result<()>) {
        let Some(response) = self.response.take() else { return };
        let error = result.err().map_or(std::ptr::null_mut(), |e| e.to_raw());
        // SAFETY: an unsent response, which this call consumes; the error stays ours and is deleted once.
        let sent = unsafe {
            let sent =
                raw::response_send(response.as_ptr(), sys::TRITONSERVER_RESPONSE_COMPLETE_FINAL, error);
            if !error.is_null() {
                sys::TRITONSERVER_ErrorDelete(error);
            }
            sent
        };
        if let Err(e) = sent {
            crate::log!(Error, "the server could not send a response: {e}");
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.finish(Err(Error::new(
            ErrorCode::Internal,
            "the backend dropped this request without an answer",
        )));
    }
}
