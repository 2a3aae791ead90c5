//! A request as it came from the client.

use std::fmt;
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::input::Input;
use crate::parameter::{self, Parameter};
use crate::{c_string, raw, sys};

/// A request that the server handed to this backend. It is read through this; answering is [`Reply`](crate::Reply)'s.
///
/// The priority that a client gives is not here: it orders the server's queue, and the backend API has no call for it.
pub struct Request {
    raw: NonNull<sys::TRITONBACKEND_Request>,
}

// SAFETY: the server's request has no tie to a thread; its calls through `&self` only read, which the server
// allows from any thread.
unsafe impl Send for Request {}
// SAFETY: as above.
unsafe impl Sync for Request {}

/// The id that ties the requests of a sequence together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorrelationId {
    /// A number; 0 is none.
    Number(u64),
    /// A string.
    Text(String),
}

/// The flags of a request, all of them: those that this crate does not know are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFlags(u32);

impl RequestFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The first request of a sequence.
    pub const SEQUENCE_START: Self = Self(sys::TRITONSERVER_REQUEST_FLAG_SEQUENCE_START);
    /// The last request of a sequence.
    pub const SEQUENCE_END: Self = Self(sys::TRITONSERVER_REQUEST_FLAG_SEQUENCE_END);

    /// The flags that the ABI numbers so.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// All flags, as the ABI numbers them.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of these flags are set.
    pub fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether the request starts a sequence.
    pub fn is_sequence_start(self) -> bool {
        self.contains(Self::SEQUENCE_START)
    }

    /// Whether the request ends a sequence. The only request of a sequence both starts and ends it.
    pub fn is_sequence_end(self) -> bool {
        self.contains(Self::SEQUENCE_END)
    }
}

impl std::ops::BitOr for RequestFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Request {
    /// # Safety
    /// `raw` is a request of the server's that is not released while this value lives.
    pub(crate) unsafe fn new(raw: NonNull<sys::TRITONBACKEND_Request>) -> Self {
        Self { raw }
    }

    pub(crate) fn as_raw(&self) -> *mut sys::TRITONBACKEND_Request {
        self.raw.as_ptr()
    }

    /// The id the client gave; empty for none.
    pub fn id(&self) -> Result<String> {
        // SAFETY: a live request; the id is copied at once.
        unsafe { raw::request_id(self.as_raw()).map(|id| raw::text(id)) }
    }

    /// The correlation id.
    pub fn correlation_id(&self) -> Result<CorrelationId> {
        // SAFETY: a live request. The server answers the number's call with an error where the id is a string.
        unsafe {
            raw::request_correlation_id(self.as_raw()).map(CorrelationId::Number).or_else(|_| {
                raw::request_correlation_id_string(self.as_raw()).map(|id| CorrelationId::Text(raw::text(id)))
            })
        }
    }

    /// The flags: where in a sequence the request stands.
    pub fn flags(&self) -> Result<RequestFlags> {
        // SAFETY: a live request.
        unsafe { raw::request_flags(self.as_raw()).map(RequestFlags) }
    }

    /// The parameters that the client set, in the server's order. What the server takes for itself, such as the
    /// priority, the timeout and the sequence of an HTTP request, is not among them.
    pub fn parameters(&self) -> Result<Vec<(String, Parameter)>> {
        // SAFETY: a live request; what belongs to it is copied at once.
        unsafe {
            let count = raw::request_parameter_count(self.as_raw())?;
            (0..count)
                .map(|index| raw::request_parameter(self.as_raw(), index).map(|found| parameter::read(found)))
                .collect()
        }
    }

    /// The parameter of that name; `None` where the client set none.
    pub fn parameter(&self, name: &str) -> Result<Option<Parameter>> {
        Ok(self.parameters()?.into_iter().find(|parameter| parameter.0 == name).map(|parameter| parameter.1))
    }

    /// The timeout in microseconds that the client set; 0 for none. The server heeds it while the request waits in a
    /// queue with a timeout policy; whether the computation does is the backend's business.
    pub fn timeout_us(&self) -> Result<u64> {
        // SAFETY: a live request.
        unsafe { raw::request_timeout(self.as_raw()) }
    }

    /// Whether the client asked for a trace of this request. An in-process request that inherits from it is traced too.
    pub fn is_traced(&self) -> bool {
        // SAFETY: a live request. A server that cannot tell does not trace it.
        unsafe { raw::request_trace(self.as_raw()) }.is_ok_and(|trace| !trace.is_null())
    }

    /// Whether the client gave the request up.
    pub fn is_cancelled(&self) -> bool {
        // SAFETY: a live request. A server that cannot tell has not cancelled it.
        unsafe { raw::request_is_cancelled(self.as_raw()) }.unwrap_or(false)
    }

    /// How many inputs came.
    pub fn input_count(&self) -> Result<u32> {
        // SAFETY: a live request.
        unsafe { raw::request_input_count(self.as_raw()) }
    }

    /// All inputs, in the server's order.
    pub fn inputs(&self) -> Result<Vec<Input<'_>>> {
        (0..self.input_count()?).map(|index| self.input_by_index(index)).collect()
    }

    /// The input of that name.
    pub fn input(&self, name: &str) -> Result<Input<'_>> {
        let text = c_string(name)?;
        // SAFETY: a live request, which outlives the borrow; the name is NUL-terminated.
        unsafe { raw::request_input(self.as_raw(), text.as_ptr()).and_then(|input| Input::new(input)) }
    }

    /// The input at that position.
    pub fn input_by_index(&self, index: u32) -> Result<Input<'_>> {
        // SAFETY: a live request, which outlives the borrow.
        unsafe { raw::request_input_by_index(self.as_raw(), index).and_then(|input| Input::new(input)) }
    }

    /// Whether the client wants an output of that name.
    pub fn wants_output(&self, name: &str) -> Result<bool> {
        Ok(self.requested_outputs()?.iter().any(|output| output == name))
    }

    /// The names of the outputs asked for. A client that names none gets all: the server says so here.
    pub fn requested_outputs(&self) -> Result<Vec<String>> {
        // SAFETY: a live request; names are copied at once.
        unsafe {
            let count = raw::request_output_count(self.as_raw())?;
            (0..count)
                .map(|index| raw::request_output_name(self.as_raw(), index).map(|name| raw::text(name)))
                .collect()
        }
    }

    /// How many samples it holds: the first dimension of its first input where the model has a batch axis, else 1.
    pub fn batch_size(&self, max_batch_size: u64) -> Result<u64> {
        if max_batch_size == 0 || self.input_count()? == 0 {
            return Ok(1);
        }
        let input = self.input_by_index(0)?;
        let first = input.shape().first().copied().unwrap_or(1);
        u64::try_from(first).map_err(|_| {
            Error::invalid_arg(format!("input '{}' has shape {:?}", input.name(), input.shape()))
        })
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("id", &self.id().unwrap_or_default()).finish()
    }
}
