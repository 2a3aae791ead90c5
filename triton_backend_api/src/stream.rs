//! The answer of a decoupled model: any number of responses, and then the word that there are no more.

use std::sync::{Arc, Weak};

use crate::data_type::DataType;
use crate::error::{Error, Result};
use crate::glue::gate::Slot;
use crate::memory::MemoryKind;
use crate::output::Output;
use crate::owned::Exchange;
use crate::parameter::Parameter;
use crate::responder::Responder;

/// A stream of responses to one request, which can outlive the request. Made by
/// [`OwnedReply::into_stream`](crate::OwnedReply::into_stream).
///
/// Fill a response ([`ResponseStream::output`], [`ResponseStream::set_parameter`]), [`ResponseStream::send`] it, fill the
/// next one; [`ResponseStream::finish`] ends the stream. It may go from thread to thread. Whatever becomes of it, the
/// client hears once that it has ended: dropped unfinished, or by a panic, it ends with an error.
///
/// Dropping the [`OwnedRequest`](crate::OwnedRequest) meanwhile gives the memory of its inputs back to the server. The
/// statistics count the request as a success then; if it is still there when the stream ends they count the outcome.
/// Until the stream is gone the request counts as in flight (see
/// [`ConcurrentInstance::max_in_flight`](crate::ConcurrentInstance::max_in_flight)).
pub struct ResponseStream {
    /// The request's in-flight place: free before the factory goes, since that may unload the model.
    slot: Option<Arc<Slot>>,
    /// None only while it is dropped. It makes its responses without the request.
    responder: Option<Responder>,
    /// Whoever still holds the request.
    exchange: Weak<Exchange>,
}

impl ResponseStream {
    /// `responder` is a decoupled model's.
    pub(crate) fn new(responder: Responder, exchange: &Arc<Exchange>) -> Self {
        let (slot, exchange) = (exchange.slot(), Arc::downgrade(exchange));
        Self { slot, responder: Some(responder), exchange }
    }

    fn responder(&mut self) -> Result<&mut Responder> {
        self.responder.as_mut().ok_or_else(|| Error::internal("the stream has ended"))
    }

    /// Adds an output to the next response and asks for its memory, on the host where the client does not want it
    /// elsewhere. One response is filled at a time: so the server has it.
    pub fn output(&mut self, name: &str, data_type: DataType, shape: &[i64]) -> Result<Output<'_>> {
        self.output_in(MemoryKind::Host, name, data_type, shape)
    }

    /// Adds an output to the next response and asks for its memory to be of the kind `preferred`.
    pub fn output_in(
        &mut self,
        preferred: MemoryKind,
        name: &str,
        data_type: DataType,
        shape: &[i64],
    ) -> Result<Output<'_>> {
        self.responder()?.output(preferred, name, data_type, shape)
    }

    /// Adds an output of type BYTES to the next response: its elements in C order, one for each place of `shape`.
    pub fn output_byte_strings(
        &mut self,
        name: &str,
        shape: &[i64],
        elements: &[impl AsRef<[u8]>],
    ) -> Result<()> {
        self.responder()?.output_byte_strings(name, shape, elements)
    }

    /// Sets a parameter of the next response, each name once.
    pub fn set_parameter(&mut self, name: &str, value: impl Into<Parameter>) -> Result<()> {
        self.responder()?.set_parameter(name, &value.into())
    }

    /// Sends the next response. It is gone also where this fails; the stream goes on. How it is counted:
    /// [`Reply::send_more`](crate::Reply::send_more).
    pub fn send(&mut self) -> Result<()> {
        self.responder()?.send_more()
    }

    /// Whether the client gave the request up. What is sent then is thrown away: better to finish with an error of
    /// [`ErrorCode::Cancelled`](crate::ErrorCode::Cancelled).
    pub fn is_cancelled(&self) -> bool {
        self.responder.as_ref().is_some_and(Responder::is_cancelled)
    }

    /// Ends the stream: with what was filled since the last response, if anything was, or with this error.
    pub fn finish(mut self, result: Result<()>) {
        self.end(result);
    }

    fn end(&mut self, result: Result<()>) {
        let Some(mut responder) = self.responder.take() else { return };
        if let Some(exchange) = self.exchange.upgrade() {
            exchange.report(result.is_ok());
        }
        responder.finish(result);
        drop(self.slot.take());
        drop(responder);
    }
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        if self.responder.is_none() {
            return;
        }
        if std::thread::panicking()
            && let Some(exchange) = self.exchange.upgrade()
        {
            // Whoever catches the panic ends the stream with its text.
            let (slot, responder) = (self.slot.take(), self.responder.take());
            exchange.adopt(Self { slot, responder, exchange: self.exchange.clone() });
            return;
        }
        self.end(Err(Error::internal("the backend dropped this stream without an end")));
    }
}
