//! Waiting for the answer to an in-process request.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::bls::allocator::{Allocator, Placement};
use crate::bls::handover::{Handover, Waited};
use crate::bls::response::InferenceResponse;
use crate::error::{Error, ErrorCode, Result};
use crate::memory::StableMemory;
use crate::{raw, sys};

/// What the two callbacks and the waiting caller share.
pub(super) struct Shared {
    handover: Handover<Sent, Box<dyn StableMemory>, InferenceResponse>,
    allocator: Arc<Allocator>,
    placement: Placement,
}

/// A request that the server has.
struct Sent(NonNull<sys::TRITONSERVER_InferenceRequest>);

// SAFETY: the request is only cancelled, which the server allows from any thread.
unsafe impl Send for Sent {}

impl Shared {
    pub fn new(
        request: NonNull<sys::TRITONSERVER_InferenceRequest>,
        inputs: Vec<Box<dyn StableMemory>>,
        allocator: Arc<Allocator>,
        placement: Placement,
    ) -> Arc<Self> {
        Arc::new(Self { handover: Handover::new(Sent(request), inputs), allocator, placement })
    }

    /// Where outputs go, for the server to pass to the allocator. It lives as long as this.
    pub fn placement(&self) -> *mut c_void {
        (&raw const self.placement).cast_mut().cast()
    }

    /// The server did not take the request: its owner deletes it, and then these inputs.
    pub fn disown(&self) -> Vec<Box<dyn StableMemory>> {
        self.handover.release()
    }

    fn cancel(&self) {
        self.handover.cancel(|request| {
            // SAFETY: not given back yet, and the release callback, which deletes it, waits for this call.
            let _ = unsafe { raw::inference_cancel(request.0.as_ptr()) };
        });
    }
}

/// The server is done with the request and its inputs.
pub(super) unsafe extern "C" fn on_release(
    request: *mut sys::TRITONSERVER_InferenceRequest,
    flags: u32,
    user: *mut c_void,
) {
    if flags & sys::TRITONSERVER_REQUEST_RELEASE_ALL == 0 {
        return; // the server keeps it for another round
    }
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the reference that `send` made for this callback, which comes once.
        let shared = unsafe { Arc::from_raw(user.cast_const().cast::<Shared>()) };
        let inputs = shared.handover.release();
        // SAFETY: the request is ours again, and nobody else holds it now. Deleted before its inputs go.
        let _ = unsafe { raw::inference_delete(request) };
        drop(inputs);
    }));
}

/// A response came; without one and with the FINAL flag the model is just done.
pub(super) unsafe extern "C" fn on_response(
    response: *mut sys::TRITONSERVER_InferenceResponse,
    flags: u32,
    user: *mut c_void,
) {
    let last = flags & sys::TRITONSERVER_RESPONSE_COMPLETE_FINAL != 0;
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let shared: *const Shared = user.cast_const().cast();
        // SAFETY: the reference that `send` made for this callback, given back with the last response.
        let shared = unsafe {
            if !last {
                Arc::increment_strong_count(shared);
            }
            Arc::from_raw(shared)
        };
        let response = (!response.is_null())
            // SAFETY: the server hands the response over; it was made with this allocator.
            .then(|| unsafe { InferenceResponse::new(response, shared.allocator.clone()) });
        shared.handover.deliver(response, last);
    }));
}

/// A request under way: [`PendingResponse::wait`] for its one response, or take the responses of a decoupled model one
/// by one with [`PendingResponse::next`]. Many can be under way at once.
///
/// Dropped before the model has ended its answer, it cancels the request; its inputs stay until the server is done with
/// them.
pub struct PendingResponse {
    shared: Arc<Shared>,
    model: String,
}

impl PendingResponse {
    pub(super) fn new(shared: Arc<Shared>, model: String) -> Self {
        Self { shared, model }
    }

    /// Waits for the one response. It is an error if none comes within `timeout` (UNAVAILABLE), if
    /// `gave_up` says meanwhile that nobody wants it any more (CANCELLED), or if the model sends none or several.
    /// The response's own error is not looked at.
    pub fn wait(self, timeout: Duration, gave_up: impl FnMut() -> bool) -> Result<InferenceResponse> {
        let mut responses =
            self.shared.handover.all(timeout, gave_up).map_err(|why| self.no_answer(why, timeout))?;
        match (responses.pop_front(), responses.len()) {
            (Some(response), 0) => Ok(response),
            (None, _) => Err(self.wrong_number(0)),
            (Some(_), more) => Err(self.wrong_number(more + 1)),
        }
    }

    /// Waits for the next response, in the order in which the model sends them; `None` once it has said that there are
    /// no more. It is an error if none comes within `timeout` (UNAVAILABLE), or if `gave_up` says meanwhile that nobody
    /// wants it any more (CANCELLED): the request goes on until this value is dropped. The response's own error is not
    /// looked at; a model's last response may carry one.
    pub fn next(
        &mut self,
        timeout: Duration,
        gave_up: impl FnMut() -> bool,
    ) -> Result<Option<InferenceResponse>> {
        self.shared.handover.next(timeout, gave_up).map_err(|why| self.no_answer(why, timeout))
    }

    /// Tells the model that nobody wants the answer any more. What it makes of that is its business: the answer may still
    /// come, or an error of its own.
    pub fn cancel(&self) {
        self.shared.cancel();
    }

    fn no_answer(&self, why: Waited, timeout: Duration) -> Error {
        match why {
            Waited::TooLong => Error::unavailable(format!(
                "model '{}' did not answer within {} s",
                self.model,
                timeout.as_secs_f64()
            )),
            Waited::GaveUp => Error::cancelled("the request was cancelled"),
        }
    }

    fn wrong_number(&self, count: usize) -> Error {
        let message = format!("model '{}' sent {count} responses; exactly one is accepted", self.model);
        Error::new(ErrorCode::Internal, message)
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        self.cancel();
    }
}
