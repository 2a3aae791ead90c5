//! The answer to a request.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::byte_strings::ByteStrings;
use crate::data_type::DataType;
use crate::error::{Error, ErrorCode, Result};
use crate::memory::MemoryKind;
use crate::output::Output;
use crate::owned::Exchange;
use crate::parameter::{Parameter, Setters};
use crate::statistics::{Timeline, now_ns};
use crate::{raw, sys};

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
        let byte_size =
            data_type.tensor_byte_size(shape).map_err(|e| e.context(format!("output '{name}'")))?;
        // SAFETY: unsent as long as the borrow lasts, since sending takes the reply.
        unsafe { Output::new(self.response()?.as_ptr(), name, data_type, shape, byte_size, preferred) }
    }

    /// Adds an output of type BYTES, written at once: its elements in C order, one for each place of `shape`.
    pub fn output_byte_strings(
        &mut self,
        name: &str,
        shape: &[i64],
        elements: &[impl AsRef<[u8]>],
    ) -> Result<()> {
        let named = |e: Error| e.context(format!("output '{name}'"));
        let count = DataType::Bytes.element_count(shape).map_err(named)?;
        if count != elements.len() {
            let given = elements.len();
            return Err(Error::invalid_arg(format!(
                "output '{name}' of shape {shape:?} takes {count} elements; {given} were given"
            )));
        }
        let byte_size = ByteStrings::encoded_size(elements).map_err(named)?;
        let response = self.response()?.as_ptr();
        // SAFETY: as above.
        unsafe { Output::new(response, name, DataType::Bytes, shape, byte_size, MemoryKind::Host) }?
            .write_byte_strings(elements)
    }

    /// Sets a parameter of the response, each name once. Doubles need a server with backend API 1.18: see
    /// [`Parameter`].
    pub fn set_parameter(&mut self, name: &str, value: impl Into<Parameter>) -> Result<()> {
        value.into().set(name, &ResponseSetters(self.response()?.as_ptr()))
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

/// The calls that set a parameter of an unsent response.
struct ResponseSetters(*mut sys::TRITONBACKEND_Response);

impl Setters for ResponseSetters {
    fn string(&self, name: &CStr, value: &CStr) -> Result<()> {
        // SAFETY: an unsent response; the strings are copied.
        unsafe { raw::response_set_string(self.0, name.as_ptr(), value.as_ptr()) }
    }
    fn int(&self, name: &CStr, value: i64) -> Result<()> {
        // SAFETY: as above.
        unsafe { raw::response_set_int(self.0, name.as_ptr(), value) }
    }
    fn bool(&self, name: &CStr, value: bool) -> Result<()> {
        // SAFETY: as above.
        unsafe { raw::response_set_bool(self.0, name.as_ptr(), value) }
    }
    fn double(&self, name: &CStr, value: f64) -> Result<()> {
        // SAFETY: as above.
        unsafe { raw::response_set_double(self.0, name.as_ptr(), value) }
    }
}
