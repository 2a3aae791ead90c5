//! Child models: closures that answer in-process requests, each call on a thread of its own.

use std::collections::HashMap;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use triton_backend_api::sys::*;

use crate::answer::ParameterValue;
use crate::block;
use crate::error::{ErrorObject, HostError};
use crate::inference::{Address, InferenceObject, Stage};
use crate::inferred::{InferredObject, InferredOutput};
use crate::request::ParameterObject;
use crate::state::{CHANGED, Outcome, Refusal, lock};
use crate::table::pointer;
use crate::test_request::Correlation;

/// What answers the in-process requests to a model.
pub type ChildModel = dyn Fn(&mut ChildCall) + Send + Sync;

#[derive(Default)]
pub(crate) struct Children {
    pub models: HashMap<String, Arc<ChildModel>>,
    pub threads: Vec<JoinHandle<()>>,
    /// Set when the host goes down: calls that would never answer end.
    pub ending: bool,
}

impl Children {
    pub fn find(&self, model: &str) -> Outcome<Arc<ChildModel>> {
        self.models.get(model).cloned().ok_or_else(|| {
            Refusal::Error(TRITONSERVER_ERROR_NOT_FOUND, format!("the server has no model '{model}'"))
        })
    }
}

/// One call of a child model: reads the request, answers it, and gives it back, in any order.
///
/// What is left undone is done when it is dropped: an error response, and the release.
pub struct ChildCall {
    handle: usize,
    request: InferenceObject,
    /// The parameters of the next response.
    parameters: Vec<ParameterObject>,
    answered: bool,
    released: bool,
}

/// An input as a child model finds it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildInput {
    /// Its element type, as the ABI numbers it.
    pub data_type: TRITONSERVER_DataType,
    /// Its shape.
    pub shape: Vec<i64>,
    /// Its bytes, read now.
    pub bytes: Vec<u8>,
    /// The kind of memory of each of its pieces.
    pub memory_types: Vec<TRITONSERVER_MemoryType>,
}

/// An output as a child model makes it.
#[derive(Clone, Debug)]
pub struct ChildOutput {
    name: String,
    data_type: TRITONSERVER_DataType,
    shape: Vec<i64>,
    bytes: Vec<u8>,
    said_size: Option<usize>,
    said_memory: Option<(TRITONSERVER_MemoryType, i64)>,
    preferred: (TRITONSERVER_MemoryType, i64),
}

impl ChildOutput {
    /// An output of any type.
    pub fn new(name: &str, data_type: TRITONSERVER_DataType, shape: &[i64], bytes: Vec<u8>) -> Self {
        let (name, shape) = (name.to_owned(), shape.to_vec());
        Self {
            name,
            data_type,
            shape,
            bytes,
            said_size: None,
            said_memory: None,
            preferred: (TRITONSERVER_MEMORY_CPU, 0),
        }
    }

    /// An FP32 output.
    pub fn fp32(name: &str, shape: &[i64], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        Self::new(name, TRITONSERVER_TYPE_FP32, shape, bytes)
    }

    /// What the response says of its size, true or not.
    pub fn saying_size(mut self, byte_size: usize) -> Self {
        self.said_size = Some(byte_size);
        self
    }

    /// Where the child would like its memory to be.
    pub fn preferring(mut self, memory_type: TRITONSERVER_MemoryType, id: i64) -> Self {
        self.preferred = (memory_type, id);
        self
    }

    /// What the response says of its memory, true or not.
    pub fn saying_memory(mut self, memory_type: TRITONSERVER_MemoryType, id: i64) -> Self {
        self.said_memory = Some((memory_type, id));
        self
    }
}

impl ChildCall {
    pub(crate) fn new(handle: usize, request: InferenceObject) -> Self {
        Self { handle, request, parameters: Vec::new(), answered: false, released: false }
    }

    /// The model that is called.
    pub fn model(&self) -> &str {
        &self.request.model
    }

    /// The version that is asked for.
    pub fn version(&self) -> i64 {
        self.request.version
    }

    /// The request's id.
    pub fn id(&self) -> &str {
        &self.request.id
    }

    /// The sequence flags.
    pub fn flags(&self) -> u32 {
        self.request.flags
    }

    /// The timeout in microseconds.
    pub fn timeout_us(&self) -> u64 {
        self.request.timeout_us
    }

    /// The priority; 0 is the model's own.
    pub fn priority(&self) -> u64 {
        self.request.priority
    }

    /// The parameters, in the order in which they were set.
    pub fn parameters(&self) -> &[(String, ParameterValue)] {
        &self.request.parameters
    }

    /// The correlation id.
    pub fn correlation(&self) -> &Correlation {
        &self.request.correlation
    }

    /// Whether a trace came along.
    pub fn is_traced(&self) -> bool {
        self.request.traced
    }

    /// The outputs that are asked for; none means all.
    pub fn requested_outputs(&self) -> &[String] {
        &self.request.outputs
    }

    /// An input, read from the backend's memory now; `None` where there is none of that name.
    ///
    /// # Panics
    /// Where the request is given back: its memory is no longer the server's to read.
    pub fn input(&self, name: &str) -> Option<ChildInput> {
        assert!(!self.released, "a child model reads its inputs before it releases the request");
        let input = self.request.inputs.iter().find(|input| input.name == name)?;
        let mut bytes = Vec::new();
        for (base, byte_size, memory_type) in &input.pieces {
            // SAFETY: the backend keeps a request's inputs readable until the release callback.
            bytes.extend(unsafe { block::read(base.0.cast::<u8>(), *byte_size, *memory_type) });
        }
        let memory_types = input.pieces.iter().map(|piece| piece.2).collect();
        Some(ChildInput { data_type: input.data_type, shape: input.shape.clone(), bytes, memory_types })
    }

    /// Whether the backend gave the request up.
    pub fn is_cancelled(&self) -> bool {
        !self.released && lock().inferences.get(self.handle).is_ok_and(|request| request.cancelled)
    }

    /// Waits until the backend gives the request up; false where it did not within `limit`.
    pub fn wait_for_cancellation(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut state = lock();
        loop {
            if state.inferences.get(self.handle).is_ok_and(|request| request.cancelled) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.children.ending {
                return false;
            }
            state = CHANGED.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Does nothing until the host goes down.
    pub fn never(&self) {
        let waited = CHANGED.wait_while(lock(), |state| !state.children.ending);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Sets a parameter of the next response.
    pub fn set_parameter(&mut self, name: &str, value: ParameterValue) {
        self.parameters.push(ParameterObject::new(name, value));
    }

    /// Sends the last response.
    pub fn respond(&mut self, outputs: Vec<ChildOutput>) {
        self.send(outputs, None, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
    }

    /// Sends a response that is not the last.
    pub fn respond_more(&mut self, outputs: Vec<ChildOutput>) {
        self.send(outputs, None, 0);
    }

    /// Answers with an error, as the last response.
    pub fn fail(&mut self, code: TRITONSERVER_Error_Code, message: &str) {
        self.send(Vec::new(), Some(HostError::new(code, message)), TRITONSERVER_RESPONSE_COMPLETE_FINAL);
    }

    /// Says that no response comes any more, without one.
    pub fn finish(&mut self) {
        self.deliver(std::ptr::null_mut(), TRITONSERVER_RESPONSE_COMPLETE_FINAL);
    }

    /// Calls the release callback with flags that do not give the request back.
    pub fn release_for_another_round(&self) {
        self.call_release(0);
    }

    /// Gives the request back.
    pub fn release(&mut self) {
        if std::mem::replace(&mut self.released, true) {
            return;
        }
        if let Ok(request) = lock().inferences.get(self.handle) {
            request.stage = Stage::GivenBack;
        }
        self.call_release(TRITONSERVER_REQUEST_RELEASE_ALL);
    }

    fn call_release(&self, flags: u32) {
        if let Some((Some(function), user)) = self.request.on_release {
            // SAFETY: the callback that the backend registered, called as the ABI says.
            unsafe { function(pointer(self.handle), flags, user.0) };
        }
    }

    fn send(&mut self, outputs: Vec<ChildOutput>, error: Option<HostError>, flags: u32) {
        let Some(on) = self.request.on_response else { return };
        let mut error = error;
        let mut made = Vec::new();
        for output in outputs {
            match self.allocate(&output) {
                Ok(output) => made.push(output),
                Err(e) => error = Some(e),
            }
        }
        let mut state = lock();
        let error = error.map(|error| {
            let mut object = ErrorObject::new(&error, "a child model");
            object.lent = true;
            state.errors.insert(object)
        });
        let model = CString::new(self.request.model.as_str()).unwrap_or_default();
        let version = self.request.version.max(1);
        let id = CString::new(self.request.id.as_str()).unwrap_or_default();
        let (parameters, allocator) = (std::mem::take(&mut self.parameters), on.allocator);
        let object = InferredObject { model, version, id, parameters, allocator, outputs: made, error };
        let response = state.inferred.insert(object);
        drop(state);
        self.deliver(pointer(response), flags);
    }

    fn deliver(&mut self, response: *mut TRITONSERVER_InferenceResponse, flags: u32) {
        self.answered |= flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL != 0;
        let Some(on) = self.request.on_response else { return };
        if let Some(function) = on.function {
            // SAFETY: the callback that the backend registered, called as the ABI says.
            unsafe { function(response, flags, on.user.0) };
        }
    }

    /// Memory for an output, from the backend's allocator, filled.
    fn allocate(&self, output: &ChildOutput) -> Result<InferredOutput, HostError> {
        let no_memory = |what: &str| HostError::new(TRITONSERVER_ERROR_INTERNAL, what);
        let on = self.request.on_response.ok_or_else(|| no_memory("no allocator"))?;
        let function = match lock().allocators.get(on.allocator) {
            Ok(allocator) => allocator.allocate,
            Err(_) => None,
        };
        let Some(function) = function else {
            lock().violation("an allocator was deleted while a request under way needed it".to_owned());
            return Err(no_memory("the allocator is gone"));
        };
        let name = CString::new(output.name.as_str()).unwrap_or_default();
        let allocated = output.bytes.len();
        let (mut base, mut user) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (mut memory_type, mut memory_type_id) = output.preferred;
        // SAFETY: the function that the backend registered, called as the ABI says.
        let error = unsafe {
            function(
                pointer(on.allocator),
                name.as_ptr(),
                allocated,
                memory_type,
                memory_type_id,
                on.allocator_user.0,
                &mut base,
                &mut user,
                &mut memory_type,
                &mut memory_type_id,
            )
        };
        crate::error::take(error)?;
        if allocated > 0 {
            if base.is_null() {
                return Err(no_memory("the allocator gave no memory"));
            }
            // SAFETY: the backend gave this many bytes to be written.
            unsafe { block::write(base.cast::<u8>(), &output.bytes, memory_type) };
        }
        (memory_type, memory_type_id) = output.said_memory.unwrap_or((memory_type, memory_type_id));
        Ok(InferredOutput {
            name,
            data_type: output.data_type,
            shape: output.shape.clone(),
            base: Address(base),
            user: Address(user),
            byte_size: output.said_size.unwrap_or(allocated),
            allocated,
            memory_type,
            memory_type_id,
        })
    }
}

impl Drop for ChildCall {
    fn drop(&mut self) {
        if !self.answered {
            self.fail(TRITONSERVER_ERROR_UNAVAILABLE, "the child model ended without an answer");
        }
        self.release();
    }
}

/// Runs a call on a thread of its own.
pub(crate) fn start(child: Arc<ChildModel>, mut call: ChildCall) {
    let thread = std::thread::spawn(move || {
        let ended = catch_unwind(AssertUnwindSafe(|| child(&mut call)));
        drop(call);
        if let Err(panic) = ended {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            lock().violation(format!("a child model failed: {}", text.unwrap_or_default()));
        }
    });
    lock().children.threads.push(thread);
}

/// Ends the calls that would never answer, and waits for all.
pub(crate) fn join() {
    lock().children.ending = true;
    CHANGED.notify_all();
    loop {
        let Some(thread) = lock().children.threads.pop() else { break };
        let _ = thread.join();
    }
    lock().children.ending = false;
}
