//! The server that loaded the backend.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::bls::{InferenceRequest, allocator::Allocator};
use crate::error::{Error, ErrorCode, Result};
use crate::{c_string, raw, sys};

/// The server, as one of its models sees it. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    raw: NonNull<sys::TRITONSERVER_Server>,
    allocator: Arc<Allocator>,
    /// The model on whose behalf calls are made.
    caller: Arc<str>,
}

// SAFETY: the server's calls may be made from any thread.
unsafe impl Send for Server {}
// SAFETY: as above.
unsafe impl Sync for Server {}

impl Server {
    /// # Safety
    /// `raw` is the server that loaded this backend; it outlives every model.
    pub(crate) unsafe fn new(raw: *mut sys::TRITONSERVER_Server, caller: &str) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or_else(|| Error::internal("the model has no server"))?;
        Ok(Self { raw, allocator: Arc::new(Allocator::new()?), caller: caller.into() })
    }

    pub(crate) fn as_raw(&self) -> *mut sys::TRITONSERVER_Server {
        self.raw.as_ptr()
    }

    pub(crate) fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    /// Lets this model keep `more` further output buffers of past calls for its next ones; it keeps one unasked.
    pub fn keep_more_outputs(&self, more: usize) {
        self.allocator.pool().keep_more(more);
    }

    /// Whether a model can be called now; -1 is whichever version the server's policy chooses.
    pub fn model_is_ready(&self, name: &str, version: i64) -> Result<bool> {
        let name = c_string(name)?;
        // SAFETY: a live server; the name is NUL-terminated.
        unsafe { raw::server_model_is_ready(self.as_raw(), name.as_ptr(), version) }
    }

    /// A request to another model of the same server. A model that calls itself would wait for itself: refused.
    pub fn inference_request(&self, model: &str, version: i64) -> Result<InferenceRequest> {
        if *model == *self.caller {
            return Err(Error::new(
                ErrorCode::Unsupported,
                format!("model '{model}' cannot call itself in-process: it would wait for itself for ever"),
            ));
        }
        InferenceRequest::new(self, model, version)
    }
}
