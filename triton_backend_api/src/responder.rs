//! The way by which the responses to one request go to its client: one, or a stream of them.

use std::ffi::CStr;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use crate::byte_strings::ByteStrings;
use crate::data_type::DataType;
use crate::error::{Error, Result};
use crate::glue::Profile;
use crate::memory::MemoryKind;
use crate::output::Output;
use crate::parameter::{Parameter, Setters};
use crate::statistics::{ResponseTimes, now_ns};
use crate::{raw, sys};

/// Sends the responses to one request, the final one exactly once. Whoever holds it sees to that: dropping it sends
/// nothing.
pub(crate) struct Responder {
    /// The response that is being filled.
    response: Option<NonNull<sys::TRITONBACKEND_Response>>,
    /// Whether anything was put into it.
    filled: bool,
    /// Where the responses of a decoupled model come from, also after the request is released.
    factory: Option<Factory>,
    instance: NonNull<sys::TRITONBACKEND_ModelInstance>,
    /// Of the response that comes next.
    times: ResponseTimes,
    profile: Arc<Profile>,
    /// Whether the final response was sent, or the attempt was made.
    done: bool,
}

// SAFETY: the server's objects behind the pointers have no tie to a thread, and a responder is used by one at a time.
unsafe impl Send for Responder {}
// SAFETY: through `&self` only the factory is asked whether the request is cancelled, which the server allows from any
// thread.
unsafe impl Sync for Responder {}

impl Responder {
    /// With a first response, made from the request; or, for a decoupled model, with what makes responses when they are
    /// filled. There none is made that may not be sent: the server's gRPC streams keep a place for each response from its
    /// making on, and answers that come after an empty place are mixed up.
    ///
    /// # Safety
    /// `request` is the server's and live; for a model that is not decoupled until this value is dropped or done.
    /// `instance` is the server's and live until then for every model.
    pub unsafe fn new(
        request: NonNull<sys::TRITONBACKEND_Request>,
        instance: NonNull<sys::TRITONBACKEND_ModelInstance>,
        profile: Arc<Profile>,
        start: u64,
    ) -> Result<Self> {
        // SAFETY: a live request.
        let (response, factory) = unsafe {
            match profile.decoupled {
                true => (None, Some(Factory::new(request)?)),
                false => (Some(not_null(raw::response_new(request.as_ptr())?)?), None),
            }
        };
        let times = ResponseTimes::start(start);
        Ok(Self { response, filled: false, factory, instance, times, profile, done: false })
    }

    /// Work on the first response begins then.
    pub fn begin(&mut self, start: u64) {
        self.times = ResponseTimes::start(start);
    }

    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Deletes the response unsent: the request stays the server's.
    pub fn discard(&mut self) {
        self.done = true;
        self.delete();
    }

    fn delete(&mut self) {
        if let Some(response) = self.response.take() {
            // SAFETY: ours, and never sent.
            let _ = unsafe { raw::response_delete(response.as_ptr()) };
        }
        self.filled = false;
    }

    /// An error where the model may not send several responses. Where it may, the request is not needed any more.
    pub fn check_stream(&self) -> Result<()> {
        if self.done {
            return Err(sent_already());
        }
        match self.factory {
            Some(_) => Ok(()),
            None => Err(Error::unsupported(format!(
                "model '{}' answers each request with one response; several need \
                 'model_transaction_policy {{ decoupled: true }}' in its configuration",
                self.profile.name
            ))),
        }
    }

    /// Forgets the response that was made from the request, so that the request can go before its answer.
    pub fn part_from_request(&mut self) -> Result<()> {
        if self.filled {
            return Err(Error::internal(
                "a reply that holds outputs or parameters cannot become a stream: send them first",
            ));
        }
        self.delete();
        Ok(())
    }

    pub fn output(
        &mut self,
        preferred: MemoryKind,
        name: &str,
        data_type: DataType,
        shape: &[i64],
    ) -> Result<Output<'_>> {
        let byte_size =
            data_type.tensor_byte_size(shape).map_err(|e| e.context(format!("output '{name}'")))?;
        // SAFETY: unsent as long as the borrow lasts, since sending needs this value.
        unsafe { Output::new(self.fill()?.as_ptr(), name, data_type, shape, byte_size, preferred) }
    }

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
        let response = self.fill()?.as_ptr();
        // SAFETY: as above.
        unsafe { Output::new(response, name, DataType::Bytes, shape, byte_size, MemoryKind::Host) }?
            .write_byte_strings(elements)
    }

    pub fn set_parameter(&mut self, name: &str, value: &Parameter) -> Result<()> {
        value.set(name, &ResponseSetters(self.fill()?.as_ptr()))
    }

    /// The response to be filled.
    fn fill(&mut self) -> Result<NonNull<sys::TRITONBACKEND_Response>> {
        let response = self.current()?;
        self.filled = true;
        if self.factory.is_some() {
            self.times.mark_output();
        }
        Ok(response)
    }

    fn current(&mut self) -> Result<NonNull<sys::TRITONBACKEND_Response>> {
        match (self.done, self.response, &self.factory) {
            (true, ..) => Err(sent_already()),
            (false, Some(response), _) => Ok(response),
            (false, None, Some(factory)) => Ok(*self.response.insert(factory.response()?)),
            (false, None, None) => Err(Error::internal("there is no response to fill")),
        }
    }

    /// Sends the response as it was filled, and not as the last one. It is gone also where this fails.
    pub fn send_more(&mut self) -> Result<()> {
        self.check_stream()?;
        let response = self.current()?;
        self.response = None;
        self.filled = false;
        self.report(null_mut());
        // SAFETY: an unsent response, which this call consumes.
        let sent = unsafe { raw::response_send(response.as_ptr(), 0, null_mut()) };
        self.times = ResponseTimes::start(now_ns());
        sent
    }

    /// Reports the statistics of a decoupled model's response before it is sent, so that a client that has it finds it
    /// counted. Statistics that cannot be reported are not the client's fault.
    fn report(&self, error: *mut sys::TRITONSERVER_Error) {
        if let Some(factory) = &self.factory {
            // SAFETY: the instance lives (see `new`), the factory is ours, the error the caller's.
            let _ = unsafe { self.times.report(self.instance, factory.0, error) };
        }
    }

    /// Sends the last response, once: what was filled, or this error. A decoupled model that filled nothing sends no
    /// response, but that there is none.
    pub fn finish(&mut self, result: Result<()>) {
        if self.done {
            return;
        }
        let outcome = self.send_last(result);
        self.done = true;
        if let Err(e) = outcome {
            crate::log!(Error, "the server could not send a response: {e}");
        }
    }

    fn send_last(&mut self, result: Result<()>) -> Result<()> {
        if let (Ok(()), false, Some(factory)) = (&result, self.filled, &self.factory) {
            self.report(null_mut());
            let ended = factory.end();
            self.delete();
            return ended;
        }
        let response = self.current();
        self.response = None;
        let error = match (&result, &response) {
            (Err(e), _) | (Ok(()), Err(e)) => e.to_raw(),
            (Ok(()), Ok(_)) => null_mut(),
        };
        self.report(error);
        let sent = match (response, &self.factory) {
            // SAFETY: an unsent response, which this call consumes; the error stays ours.
            (Ok(response), _) => unsafe {
                raw::response_send(response.as_ptr(), sys::TRITONSERVER_RESPONSE_COMPLETE_FINAL, error)
            },
            // The error is lost, but the client learns that nothing follows.
            (Err(e), Some(factory)) => factory.end().and(Err(e)),
            (Err(e), None) => Err(e),
        };
        if !error.is_null() {
            // SAFETY: ours, deleted once.
            unsafe { sys::TRITONSERVER_ErrorDelete(error) };
        }
        sent
    }

    /// Whether the client gave the request up; false where the model is not decoupled.
    pub fn is_cancelled(&self) -> bool {
        self.factory.as_ref().is_some_and(Factory::is_cancelled)
    }
}

/// Makes the responses to a request, also after the request is released. It keeps the model loaded.
struct Factory(NonNull<sys::TRITONBACKEND_ResponseFactory>);

impl Factory {
    /// # Safety
    /// The request is live.
    unsafe fn new(request: NonNull<sys::TRITONBACKEND_Request>) -> Result<Self> {
        // SAFETY: see above.
        let factory = unsafe { raw::response_factory_new(request.as_ptr()) }?;
        NonNull::new(factory).map(Self).ok_or_else(|| Error::internal("the server made no response factory"))
    }

    fn response(&self) -> Result<NonNull<sys::TRITONBACKEND_Response>> {
        // SAFETY: a live factory.
        not_null(unsafe { raw::response_new_from_factory(self.0.as_ptr()) }?)
    }

    /// Says that no response follows.
    fn end(&self) -> Result<()> {
        // SAFETY: a live factory.
        unsafe {
            raw::response_factory_send_flags(self.0.as_ptr(), sys::TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        }
    }

    fn is_cancelled(&self) -> bool {
        // SAFETY: a live factory. A server that cannot tell has not cancelled it.
        unsafe { raw::response_factory_is_cancelled(self.0.as_ptr()) }.unwrap_or(false)
    }
}

impl Drop for Factory {
    fn drop(&mut self) {
        // SAFETY: ours, deleted once.
        let _ = unsafe { raw::response_factory_delete(self.0.as_ptr()) };
    }
}

fn not_null(response: *mut sys::TRITONBACKEND_Response) -> Result<NonNull<sys::TRITONBACKEND_Response>> {
    NonNull::new(response).ok_or_else(|| Error::internal("the server made no response"))
}

pub(crate) fn sent_already() -> Error {
    Error::internal("the response is sent already")
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
