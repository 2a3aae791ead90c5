//! Requests and their inputs, as the backend reads them.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use triton_backend_api::sys::*;

use crate::answer::{Answer, ParameterValue, Statistics};
use crate::block::Block;
use crate::factory::Common;
use crate::late::late_symbols;
use crate::response::ResponseObject;
use crate::state::{Outcome, Refusal, State, consume, out_of_bounds, put, symbols, text};
use crate::table::{handle, pointer};
use crate::test_request::{Correlation, c_string};

/// What became of every request, by its handle. It outlives the request.
pub(crate) type Answers = HashMap<usize, Answer>;

pub(crate) struct RequestObject {
    pub common: Arc<Common>,
    pub id: CString,
    pub correlation: Correlation,
    pub flags: u32,
    pub timeout_us: u64,
    pub parameters: Vec<ParameterObject>,
    pub inputs: Vec<usize>,
    pub outputs: Vec<CString>,
    pub trace: Option<usize>,
    /// Monotonic nanoseconds at which the backend got it.
    pub since_ns: u64,
    /// Whether a release was made to fail: the backend did what it could.
    pub release_failed: bool,
}

/// A parameter, where a backend can be pointed to its value.
pub(crate) struct ParameterObject {
    name: CString,
    value: ParameterValue,
    /// The value where it is a string.
    text: CString,
}

impl ParameterObject {
    pub fn new(name: &str, value: ParameterValue) -> Self {
        let text = match &value {
            ParameterValue::String(text) => c_string(text),
            _ => CString::default(),
        };
        Self { name: c_string(name), value, text }
    }

    pub fn name(&self) -> *const c_char {
        self.name.as_ptr()
    }

    /// Its type as the ABI numbers it, and where its value is.
    pub fn value(&self) -> (TRITONSERVER_ParameterType, *const c_void) {
        match &self.value {
            ParameterValue::String(_) => (TRITONSERVER_PARAMETER_STRING, self.text.as_ptr().cast()),
            ParameterValue::Int(value) => (TRITONSERVER_PARAMETER_INT, (&raw const *value).cast()),
            ParameterValue::Bool(value) => (TRITONSERVER_PARAMETER_BOOL, (&raw const *value).cast()),
            ParameterValue::Double(value) => (TRITONSERVER_PARAMETER_DOUBLE, (&raw const *value).cast()),
            ParameterValue::Other(kind) => (*kind, (&raw const *kind).cast()),
        }
    }
}

pub(crate) struct InputObject {
    pub name: CString,
    pub data_type: TRITONSERVER_DataType,
    pub shape: Vec<i64>,
    pub byte_size: u64,
    pub buffers: Vec<Block>,
    /// Buffers for the instances of one host policy.
    pub of_policies: HashMap<String, Block>,
}

impl InputObject {
    /// Its buffers for a host policy, null for none, and their size.
    fn buffers_for(&mut self, policy: Option<String>) -> (&mut [Block], u64) {
        match policy.and_then(|name| self.of_policies.get_mut(&name)) {
            Some(block) => {
                let byte_size = block.byte_size() as u64;
                (std::slice::from_mut(block), byte_size)
            }
            None => (&mut self.buffers, self.byte_size),
        }
    }

    /// # Safety
    /// All places are null or live.
    #[allow(clippy::too_many_arguments)] // the ABI's
    unsafe fn describe(
        &mut self,
        policy: Option<String>,
        name: *mut *const c_char,
        datatype: *mut TRITONSERVER_DataType,
        shape: *mut *const i64,
        dims_count: *mut u32,
        byte_size: *mut u64,
        buffer_count: *mut u32,
    ) -> Outcome {
        let (buffers, size) = self.buffers_for(policy);
        let count = buffers.len() as u32;
        // SAFETY: see above. The ABI allows to leave out what is not asked for.
        unsafe {
            let _ = put(name, self.name.as_ptr());
            let _ = put(datatype, self.data_type);
            let _ = put(shape, self.shape.as_ptr());
            let _ = put(dims_count, self.shape.len() as u32);
            let _ = put(byte_size, size);
            let _ = put(buffer_count, count);
        }
        Ok(())
    }

    /// # Safety
    /// All places are null or live.
    unsafe fn buffer(
        &mut self,
        policy: Option<String>,
        index: u32,
        buffer: *mut *const c_void,
        buffer_byte_size: *mut u64,
        memory_type: *mut TRITONSERVER_MemoryType,
        memory_type_id: *mut i64,
    ) -> Outcome {
        let (buffers, _) = self.buffers_for(policy);
        let count = buffers.len();
        let Some(block) = buffers.get_mut(index as usize) else {
            return out_of_bounds("buffer", index, count);
        };
        // SAFETY: see above.
        unsafe {
            put(buffer, block.as_mut_ptr().cast_const().cast())?;
            put(buffer_byte_size, block.byte_size() as u64)?;
            put(memory_type, block.memory_type)?;
            put(memory_type_id, block.memory_type_id)
        }
    }
}

impl State {
    /// Ends a request and everything that hangs on it.
    pub fn end_request(&mut self, request: usize, how: &'static str) -> Outcome<RequestObject> {
        let object = self.requests.end(request, how)?;
        for input in &object.inputs {
            self.inputs.end(*input, "released with its request")?;
        }
        if let Some(trace) = object.trace {
            self.traces.end(trace, "released with its request")?;
        }
        Ok(object)
    }

    /// The responses to a request that are neither sent nor deleted.
    pub fn open_responses(&self, request: usize) -> usize {
        let of_request = |response: &ResponseObject| response.origin.request == request;
        self.responses.iter().filter(|(_, response)| of_request(response)).count()
    }

    /// Those among them that cannot be sent once the request is released.
    fn responses_by_request(&self, request: usize) -> usize {
        let bound =
            |response: &ResponseObject| response.origin.request == request && !response.origin.by_factory;
        self.responses.iter().filter(|(_, response)| bound(response)).count()
    }

    pub fn answer(&mut self, request: usize) -> &mut Answer {
        self.answers.entry(request).or_default()
    }
}

symbols! {
    fn TRITONBACKEND_RequestId(request: *mut TRITONBACKEND_Request, id: *mut *const c_char) |state| {
        put(id, state.requests.get(handle(request))?.id.as_ptr())
    }

    fn TRITONBACKEND_RequestIsCancelled(request: *mut TRITONBACKEND_Request, is_cancelled: *mut bool) |state| {
        put(is_cancelled, state.requests.get(handle(request))?.common.cancelled.load(Ordering::SeqCst))
    }

    fn TRITONBACKEND_RequestCorrelationId(request: *mut TRITONBACKEND_Request, id: *mut u64) |state| {
        match &state.requests.get(handle(request))?.correlation {
            Correlation::Number(number) => put(id, *number),
            Correlation::Text(_) => Err(wrong_correlation("a number")),
        }
    }

    fn TRITONBACKEND_RequestCorrelationIdString(
        request: *mut TRITONBACKEND_Request, id: *mut *const c_char
    ) |state| {
        match &state.requests.get(handle(request))?.correlation {
            Correlation::Text(text) => put(id, text.as_ptr()),
            Correlation::Number(_) => Err(wrong_correlation("a string")),
        }
    }

    fn TRITONBACKEND_RequestFlags(request: *mut TRITONBACKEND_Request, flags: *mut u32) |state| {
        put(flags, state.requests.get(handle(request))?.flags)
    }

    fn TRITONBACKEND_RequestParameterCount(request: *mut TRITONBACKEND_Request, count: *mut u32) |state| {
        put(count, state.requests.get(handle(request))?.parameters.len() as u32)
    }

    fn TRITONBACKEND_RequestParameter(
        request: *mut TRITONBACKEND_Request, index: u32, key: *mut *const c_char,
        type_: *mut TRITONSERVER_ParameterType, vvalue: *mut *const c_void
    ) |state| {
        let parameters = &state.requests.get(handle(request))?.parameters;
        let Some(parameter) = parameters.get(index as usize) else {
            return out_of_bounds("parameter", index, parameters.len());
        };
        let (kind, value) = parameter.value();
        put(key, parameter.name())?;
        put(type_, kind)?;
        put(vvalue, value)
    }

    fn TRITONBACKEND_RequestInputCount(request: *mut TRITONBACKEND_Request, count: *mut u32) |state| {
        put(count, state.requests.get(handle(request))?.inputs.len() as u32)
    }

    fn TRITONBACKEND_RequestInput(
        request: *mut TRITONBACKEND_Request, name: *const c_char, input: *mut *mut TRITONBACKEND_Input
    ) |state| {
        let name = text(name)?;
        for candidate in state.requests.get(handle(request))?.inputs.clone() {
            if state.inputs.get(candidate)?.name.to_bytes() == name.as_bytes() {
                return put(input, pointer(candidate));
            }
        }
        put(input, std::ptr::null_mut())?;
        Err(Refusal::Error(TRITONSERVER_ERROR_INVALID_ARG, format!("the request has no input '{name}'")))
    }

    fn TRITONBACKEND_RequestInputByIndex(
        request: *mut TRITONBACKEND_Request, index: u32, input: *mut *mut TRITONBACKEND_Input
    ) |state| {
        let inputs = &state.requests.get(handle(request))?.inputs;
        match inputs.get(index as usize) {
            Some(found) => put(input, pointer(*found)),
            None => out_of_bounds("input", index, inputs.len()),
        }
    }

    fn TRITONBACKEND_RequestOutputCount(request: *mut TRITONBACKEND_Request, count: *mut u32) |state| {
        put(count, state.requests.get(handle(request))?.outputs.len() as u32)
    }

    fn TRITONBACKEND_RequestOutputName(
        request: *mut TRITONBACKEND_Request, index: u32, output_name: *mut *const c_char
    ) |state| {
        let outputs = &state.requests.get(handle(request))?.outputs;
        match outputs.get(index as usize) {
            Some(name) => put(output_name, name.as_ptr()),
            None => out_of_bounds("output", index, outputs.len()),
        }
    }

    fn TRITONBACKEND_RequestTrace(
        request: *mut TRITONBACKEND_Request, trace: *mut *mut TRITONSERVER_InferenceTrace
    ) |state| {
        let found = state.requests.get(handle(request))?.trace;
        put(trace, found.map_or(std::ptr::null_mut(), pointer))
    }

    fn TRITONBACKEND_InputProperties(
        input: *mut TRITONBACKEND_Input, name: *mut *const c_char, datatype: *mut TRITONSERVER_DataType,
        shape: *mut *const i64, dims_count: *mut u32, byte_size: *mut u64, buffer_count: *mut u32
    ) |state| {
        let object = state.inputs.get(handle(input))?;
        object.describe(None, name, datatype, shape, dims_count, byte_size, buffer_count)
    }

    fn TRITONBACKEND_InputPropertiesForHostPolicy(
        input: *mut TRITONBACKEND_Input, host_policy_name: *const c_char, name: *mut *const c_char,
        datatype: *mut TRITONSERVER_DataType, shape: *mut *const i64, dims_count: *mut u32,
        byte_size: *mut u64, buffer_count: *mut u32
    ) |state| {
        let policy = Some(text(host_policy_name)?);
        let object = state.inputs.get(handle(input))?;
        object.describe(policy, name, datatype, shape, dims_count, byte_size, buffer_count)
    }

    fn TRITONBACKEND_InputBuffer(
        input: *mut TRITONBACKEND_Input, index: u32, buffer: *mut *const c_void,
        buffer_byte_size: *mut u64, memory_type: *mut TRITONSERVER_MemoryType, memory_type_id: *mut i64
    ) |state| {
        let object = state.inputs.get(handle(input))?;
        object.buffer(None, index, buffer, buffer_byte_size, memory_type, memory_type_id)
    }

    fn TRITONBACKEND_InputBufferForHostPolicy(
        input: *mut TRITONBACKEND_Input, host_policy_name: *const c_char, index: u32,
        buffer: *mut *const c_void, buffer_byte_size: *mut u64, memory_type: *mut TRITONSERVER_MemoryType,
        memory_type_id: *mut i64
    ) |state| {
        let policy = Some(text(host_policy_name)?);
        let object = state.inputs.get(handle(input))?;
        object.buffer(policy, index, buffer, buffer_byte_size, memory_type, memory_type_id)
    }

    fn TRITONBACKEND_ModelInstanceReportStatistics(
        instance: *mut TRITONBACKEND_ModelInstance, request: *mut TRITONBACKEND_Request, success: bool,
        exec_start_ns: u64, compute_start_ns: u64, compute_end_ns: u64, exec_end_ns: u64
    ) |state| {
        let model = state.instances.get(handle(instance))?.model;
        let object = state.requests.get(handle(request))?;
        if object.common.model != model {
            return Err(Refusal::Violation("the request is not one of this instance's model".to_owned()));
        }
        let times = [exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns];
        crate::answer::check_times(&times, object.since_ns)?;
        state.answer(handle(request)).statistics.push(Statistics { success, times });
        Ok(())
    }
}

late_symbols! {
    fn TRITONBACKEND_InferenceRequestTimeoutMicroseconds: TRITONBACKEND_InferenceRequestTimeoutMicroseconds_late(
        request: *mut TRITONBACKEND_Request, timeout: *mut u64
    ) |state| {
        put(timeout, state.requests.get(handle(request))?.timeout_us)
    }
    also
}

fn wrong_correlation(what: &str) -> Refusal {
    Refusal::Error(TRITONSERVER_ERROR_INVALID_ARG, format!("the request's correlation id is not {what}"))
}

/// See the ABI. A release that fails leaves the request where it was.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONBACKEND_RequestRelease(
    request: *mut TRITONBACKEND_Request,
    release_flags: u32,
) -> *mut TRITONSERVER_Error {
    let release = |state: &mut State, failing: bool| {
        let request = handle(request);
        let model = state.requests.get(request)?.common.model;
        if release_flags != TRITONSERVER_REQUEST_RELEASE_ALL {
            return Err(Refusal::Violation(format!("release flags {release_flags} are not RELEASE_ALL")));
        }
        if failing {
            state.requests.get(request)?.release_failed = true;
        } else {
            state.end_request(request, "released")?;
        }
        let name = state.requests.name(request);
        let open = state.responses_by_request(request);
        let answerable = state.has_factory(request);
        let answer = state.answer(request);
        answer.released += 1;
        let answered = answer.is_final();
        if !answered && !answerable {
            state.violation(format!("{name} was released before it was answered"));
        }
        if open > 0 {
            state.violation(format!(
                "{name} was released with {open} of its responses neither sent nor deleted"
            ));
        }
        Ok(model)
    };
    consume("TRITONBACKEND_RequestRelease", release, crate::model::unload_if_idle)
}
