//! A request as it came from the client.

use std::fmt;
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::input::Input;
use crate::{c_string, raw, sys};

/// A request that the server handed to this backend. It is read through this; answering is [`Reply`](crate::Reply)'s.
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

    /// The sequence flags, as the ABI numbers them.
    pub fn flags(&self) -> Result<u32> {
        // SAFETY: a live request.
        unsafe { raw::request_flags(self.as_raw()) }
    }

    /// The timeout in microseconds that the client set; 0 for none.
    pub fn timeout_us(&self) -> Result<u64> {
        // SAFETY: a live request.
        unsafe { raw::request_timeout(self.as_raw()) }
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
