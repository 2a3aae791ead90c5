//! A request and its reply handed over to the backend for good: what lets Execute return before the answer.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::{Error, Result};
use crate::glue::gate::Slot;
use crate::reply::{Reply, Report};
use crate::request::Request;
use crate::stream::ResponseStream;
use crate::{raw, sys};

/// One request in flight. The last of [`OwnedRequest`], [`OwnedReply`] and the glue to let go of it releases it.
pub(crate) struct Exchange {
    request: NonNull<sys::TRITONBACKEND_Request>,
    /// What an author who panicked left unanswered: the glue answers it with the panic's text.
    orphan: Mutex<Option<Orphan>>,
    /// Set once the request counts as in flight. A stream shares it.
    slot: OnceLock<Arc<Slot>>,
    /// The statistics of a request whose reply became a stream: due when that ends, at the latest when this does.
    report: Mutex<Option<Report>>,
}

/// An unanswered reply, or an unfinished stream. Dropping it answers too.
enum Orphan {
    Reply(Reply),
    Stream(ResponseStream),
}

// SAFETY: the server's request has no tie to a thread; everything else is.
unsafe impl Send for Exchange {}
// SAFETY: through `&self` only the mutex and the once-cell are touched.
unsafe impl Sync for Exchange {}

impl Exchange {
    /// Hands over a request.
    ///
    /// # Safety
    /// `request` is a request of the server's that this backend has taken over, and `reply` is its reply.
    pub(crate) unsafe fn hand_over(
        request: NonNull<sys::TRITONBACKEND_Request>,
        mut reply: Reply,
    ) -> (Arc<Self>, OwnedRequest, OwnedReply) {
        let (orphan, slot, report) = (Mutex::new(None), OnceLock::new(), Mutex::new(None));
        let exchange = Arc::new(Self { request, orphan, slot, report });
        // SAFETY: live until the exchange is dropped, which the owned request holds.
        let view = unsafe { Request::new(request) };
        reply.keep_alive(exchange.clone());
        let request = OwnedRequest { request: view, _exchange: exchange.clone() };
        (exchange, request, OwnedReply { reply: Some(reply) })
    }

    /// The request counts as in flight from here on.
    pub(crate) fn enter(&self, slot: Slot) {
        let _ = self.slot.set(Arc::new(slot));
    }

    /// The place in flight, for whoever may outlive this.
    pub(crate) fn slot(&self) -> Option<Arc<Slot>> {
        self.slot.get().cloned()
    }

    /// Has the statistics reported when the stream ends, or else with the release.
    pub(crate) fn report_later(&self, report: Report) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }

    /// Reports what is due, once.
    pub(crate) fn report(&self, success: bool) {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(report) = report {
            report.send(success);
        }
    }

    /// Answers what a panicking author left behind.
    pub(crate) fn answer_orphan(&self, error: Error) {
        let orphan = self.orphan.lock().unwrap_or_else(PoisonError::into_inner).take();
        match orphan {
            Some(Orphan::Reply(mut reply)) => reply.finish(Err(error)),
            Some(Orphan::Stream(stream)) => stream.finish(Err(error)),
            None => (),
        }
    }

    /// Keeps the stream of an author who panicked.
    pub(crate) fn adopt(&self, stream: ResponseStream) {
        self.keep(Orphan::Stream(stream));
    }

    fn keep(&self, orphan: Orphan) {
        *self.orphan.lock().unwrap_or_else(PoisonError::into_inner) = Some(orphan);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // A reply must be answered and the statistics told before the request is released, and the slot must be free
        // before: releasing the last request can unload the model on this very thread, and unloading waits for the slots.
        let orphan = self.orphan.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        self.report(orphan.is_none());
        drop(orphan);
        drop(self.slot.take());
        // SAFETY: taken over from the server, and released here only.
        let released =
            unsafe { raw::request_release(self.request.as_ptr(), sys::TRITONSERVER_REQUEST_RELEASE_ALL) };
        if let Err(e) = released {
            crate::log!(Error, "the server could not take a request back: {e}");
        }
    }
}

/// A request that is this backend's until it is dropped. See [`Request`].
pub struct OwnedRequest {
    request: Request,
    _exchange: Arc<Exchange>,
}

impl Deref for OwnedRequest {
    type Target = Request;
    fn deref(&self) -> &Request {
        &self.request
    }
}

/// A reply that is this backend's to send. Dropped unsent, it answers with an error. See [`Reply`].
///
/// The reply itself keeps its request alive: two replies may even be swapped.
pub struct OwnedReply {
    /// None once it is sent.
    reply: Option<Reply>,
}

impl OwnedReply {
    /// Sends the response: as it was filled, or as this error.
    pub fn send(mut self, result: Result<()>) {
        if let Some(mut reply) = self.reply.take() {
            reply.finish(result);
        }
    }

    /// Turns it into a stream of any number of responses, which can outlive the request. Where that is not possible the
    /// request is answered with the error that this returns: UNSUPPORTED where the model's configuration has no
    /// `model_transaction_policy { decoupled: true }`.
    ///
    /// Nothing may have been filled in yet. A stream that need not outlive its request does without:
    /// [`Reply::send_more`].
    pub fn into_stream(mut self) -> Result<ResponseStream> {
        match self.reply.take() {
            Some(reply) => reply.into_stream(),
            None => Err(Error::internal("the response is sent already")),
        }
    }
}

impl Deref for OwnedReply {
    type Target = Reply;
    #[allow(clippy::expect_used)] // `send` and `drop` alone take the reply, and they consume this value
    fn deref(&self) -> &Reply {
        self.reply.as_ref().expect("an owned reply holds its reply until it is sent")
    }
}

impl DerefMut for OwnedReply {
    #[allow(clippy::expect_used)] // as above
    fn deref_mut(&mut self) -> &mut Reply {
        self.reply.as_mut().expect("an owned reply holds its reply until it is sent")
    }
}

impl Drop for OwnedReply {
    fn drop(&mut self) {
        let orphan = self.reply.take().filter(|_| std::thread::panicking());
        if let Some((exchange, reply)) = orphan.and_then(Reply::orphan) {
            exchange.keep(Orphan::Reply(reply));
        }
    }
}
