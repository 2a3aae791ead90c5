//! The answer to a request.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::data_type::DataType;
use crate::error::{Error, Result};
use crate::glue::Profile;
use crate::memory::MemoryKind;
use crate::output::Output;
use crate::owned::Exchange;
use crate::parameter::Parameter;
use crate::responder::{Responder, sent_already};
use crate::statistics::{Timeline, now_ns};
use crate::stream::ResponseStream;
use crate::{raw, sys};

/// The answer to one request: outputs and parameters go in here, and it is sent exactly once.
///
/// Whoever implements [`Instance::infer`](crate::Instance::infer) only fills it; returning sends it. In a decoupled
/// model several responses can be sent before: [`Reply::send_more`].
pub struct Reply {
    /// None once it became a stream.
    responder: Option<Responder>,
    report: Report,
    /// What releases the request, where this reply outlives Execute. Dropped after the answer is sent.
    exchange: Option<Arc<Exchange>>,
}

/// The statistics of a request, to be reported while it is there.
#[derive(Clone, Copy)]
pub(crate) struct Report {
    request: NonNull<sys::TRITONBACKEND_Request>,
    instance: NonNull<sys::TRITONBACKEND_ModelInstance>,
    timeline: Timeline,
    batch_size: u64,
    /// Whether this request is an execution of its own in the statistics, or part of a batch that is one.
    own_execution: bool,
}

// SAFETY: the server's objects behind the pointers have no tie to a thread; reporting is allowed on any.
unsafe impl Send for Report {}

impl Report {
    /// Reports a success or a failure that ends now.
    pub fn send(&self, success: bool) {
        let [start, compute_start, compute_end, end] = self.timeline.finish(now_ns());
        let (instance, request) = (self.instance.as_ptr(), self.request.as_ptr());
        // SAFETY: instance and request live (see `Reply::new`). Statistics that cannot be reported are not the client's
        // fault.
        unsafe {
            let _ =
                raw::report_statistics(instance, request, success, start, compute_start, compute_end, end);
            if success && self.own_execution {
                let size = self.batch_size;
                let _ = raw::report_batch_statistics(instance, size, start, compute_start, compute_end, end);
            }
        }
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
        profile: Arc<Profile>,
    ) -> Result<Self> {
        let timeline = Timeline::start();
        // SAFETY: a live request; the instance lives as long as the reply, and as a stream made of it: finalizing waits.
        let responder = unsafe { Responder::new(request, instance, profile, timeline.start) }?;
        let report = Report { request, instance, timeline, batch_size: 1, own_execution: true };
        Ok(Self { responder: Some(responder), report, exchange: None })
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
        if let Some(responder) = &mut self.responder {
            responder.discard();
        }
    }

    /// See [`OwnedReply::into_stream`](crate::OwnedReply::into_stream).
    pub(crate) fn into_stream(mut self) -> Result<ResponseStream> {
        match self.part_from_request() {
            Ok(stream) => Ok(stream),
            Err(e) => {
                self.finish(Err(e.clone()));
                Err(e)
            }
        }
    }

    fn part_from_request(&mut self) -> Result<ResponseStream> {
        let responder = self.responder()?;
        responder.check_stream()?;
        responder.part_from_request()?;
        let exchange =
            self.exchange.clone().ok_or_else(|| Error::internal("the request is not handed over"))?;
        let responder = self.responder.take().ok_or_else(sent_already)?;
        exchange.report_later(self.report);
        Ok(ResponseStream::new(responder, &exchange))
    }

    /// The execution of this request starts now.
    pub(crate) fn begin(&mut self, batch_size: u64) {
        self.report.timeline = Timeline::start();
        self.report.batch_size = batch_size;
        if let Some(responder) = &mut self.responder {
            responder.begin(self.report.timeline.start);
        }
    }

    /// The request is part of an execution that the batch reports, with these times so far.
    pub(crate) fn join(&mut self, timeline: Timeline) {
        self.report.timeline = timeline;
        self.report.own_execution = false;
    }

    fn responder(&mut self) -> Result<&mut Responder> {
        self.responder.as_mut().ok_or_else(sent_already)
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.responder.as_ref().is_none_or(Responder::is_done)
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
        self.responder()?.output(preferred, name, data_type, shape)
    }

    /// Adds an output of type BYTES, written at once: its elements in C order, one for each place of `shape`.
    pub fn output_byte_strings(
        &mut self,
        name: &str,
        shape: &[i64],
        elements: &[impl AsRef<[u8]>],
    ) -> Result<()> {
        self.responder()?.output_byte_strings(name, shape, elements)
    }

    /// Sets a parameter of the response, each name once. Doubles need a server with backend API 1.18: see
    /// [`Parameter`].
    pub fn set_parameter(&mut self, name: &str, value: impl Into<Parameter>) -> Result<()> {
        self.responder()?.set_parameter(name, &value.into())
    }

    /// Sends what was filled in so far as one response of several; what is filled in after goes into the next one. It is
    /// gone also where this fails. UNSUPPORTED where the model's configuration has no
    /// `model_transaction_policy { decoupled: true }`.
    ///
    /// Each response of a decoupled model, the last and an empty one too, is counted in the server's statistics by its
    /// place in the stream (`response_stats`), with the time until something was put into it and the time since then.
    /// Servers with a backend API older than 1.19 have no such statistics; nothing else differs there.
    ///
    /// Returning from [`Instance::infer`](crate::Instance::infer) sends the last response, with what was filled in since.
    /// Nothing filled in since means that none follows: a decoupled model may answer with no response at all.
    ///
    /// ```
    /// # use triton_backend_api::{DataType, Reply, Request, Result};
    /// fn infer(request: &Request, reply: &mut Reply) -> Result<()> {
    ///     for number in request.input("COUNTS")?.elements::<i32>()?.iter() {
    ///         reply.output("COUNT", DataType::Int32, &[1])?.write(&[*number])?;
    ///         reply.send_more()?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn send_more(&mut self) -> Result<()> {
        self.responder()?.send_more()
    }

    /// The inputs are ready, the computation starts: what came before is the statistics' `compute_input`.
    pub fn mark_compute_start(&mut self) {
        self.report.timeline.mark_compute_start();
    }

    /// The computation is done: what comes after is the statistics' `compute_output`.
    pub fn mark_compute_end(&mut self) {
        self.report.timeline.mark_compute_end();
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
        if !self.is_sent() {
            self.report.send(success);
        }
    }

    /// Sends the response, once; later calls do nothing.
    pub(crate) fn send(&mut self, result: Result<()>) {
        if let Some(responder) = &mut self.responder {
            responder.finish(result);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.finish(Err(Error::internal("the backend dropped this request without an answer")));
    }
}
