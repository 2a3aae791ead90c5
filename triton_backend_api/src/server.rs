//! The server that loaded the backend.

use std::ptr::NonNull;
use std::sync::Arc;

use serde_json::Value;

use crate::ModelConfig;
use crate::bls::{InferenceRequest, allocator::Allocator};
use crate::error::{Error, ErrorCode, Result};
use crate::{c_string, message, raw, sys};

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

    /// Whether the server is up.
    pub fn is_live(&self) -> Result<bool> {
        // SAFETY: a live server.
        unsafe { raw::server_is_live(self.as_raw()) }
    }

    /// Whether the server and, with its strict readiness, all its models take requests.
    pub fn is_ready(&self) -> Result<bool> {
        // SAFETY: a live server.
        unsafe { raw::server_is_ready(self.as_raw()) }
    }

    /// What the server is: `{"name": .., "version": .., "extensions": [..]}`.
    pub fn metadata(&self) -> Result<Value> {
        // SAFETY: a live server; the message is ours.
        unsafe { message::take(raw::server_metadata(self.as_raw())?, "metadata") }
    }

    /// A model's name, versions, platform, inputs and outputs. -1 is whichever version the server's policy chooses.
    ///
    /// Errors: the server's, among them that a model is not there or not ready.
    pub fn model_metadata(&self, name: &str, version: i64) -> Result<Value> {
        let name = c_string(name)?;
        // SAFETY: a live server and a NUL-terminated name; the message is ours.
        unsafe {
            message::take(
                raw::server_model_metadata(self.as_raw(), name.as_ptr(), version)?,
                "model metadata",
            )
        }
    }

    /// What a model did so far: `{"model_stats": [{..}]}`, durations in nanoseconds. An empty name is all models; versions
    /// and errors as for [`Self::model_metadata`].
    pub fn model_statistics(&self, name: &str, version: i64) -> Result<Value> {
        let name = c_string(name)?;
        // SAFETY: a live server and a NUL-terminated name; the message is ours.
        unsafe {
            let statistics = raw::server_model_statistics(self.as_raw(), name.as_ptr(), version)?;
            message::take(statistics, "model statistics")
        }
    }

    /// The configuration of a model that is loaded. Versions and errors as for [`Self::model_metadata`].
    pub fn model_config(&self, name: &str, version: i64) -> Result<ModelConfig> {
        let name = c_string(name)?;
        // SAFETY: a live server and a NUL-terminated name; the message is ours.
        let config = unsafe {
            let config = raw::server_model_config(self.as_raw(), name.as_ptr(), version, 1)?;
            message::take(config, "model configuration")
        }?;
        Ok(ModelConfig::from(config))
    }

    /// The models of the repositories, or only those that are ready: `[{"name": .., "version": .., "state": ..}, ..]`.
    pub fn model_index(&self, only_ready: bool) -> Result<Value> {
        let flags = if only_ready { sys::TRITONSERVER_INDEX_FLAG_READY } else { 0 };
        // SAFETY: a live server; the message is ours.
        unsafe { message::take(raw::server_model_index(self.as_raw(), flags)?, "model index") }
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
