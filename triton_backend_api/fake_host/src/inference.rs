//! In-process requests, as the backend makes them.

use std::ffi::{c_char, c_void};

use triton_backend_api::sys::*;

use crate::answer::ParameterValue;
use crate::child::ChildCall;
use crate::late::late_symbols;
use crate::state::{CHANGED, Outcome, Refusal, State, consume, put, symbols, text};
use crate::table::{handle, pointer};
use crate::test_request::Correlation;

/// An address that the backend passed. Whether it may be followed is the ABI's business.
#[derive(Clone, Copy)]
pub(crate) struct Address(pub *mut c_void);

// SAFETY: an address is passed around; what it points to may be used from any thread, as the ABI has it.
unsafe impl Send for Address {}

#[derive(Clone)]
pub(crate) struct InferenceInput {
    pub name: String,
    pub data_type: TRITONSERVER_DataType,
    pub shape: Vec<i64>,
    pub pieces: Vec<(Address, usize, TRITONSERVER_MemoryType)>,
}

#[derive(Clone, Copy)]
pub(crate) struct OnResponse {
    pub allocator: usize,
    pub allocator_user: Address,
    pub function: TRITONSERVER_InferenceResponseCompleteFn_t,
    pub user: Address,
}

#[derive(Clone)]
pub(crate) struct InferenceObject {
    pub model: String,
    pub version: i64,
    pub id: String,
    pub flags: u32,
    pub timeout_us: u64,
    pub priority: u64,
    pub parameters: Vec<(String, ParameterValue)>,
    pub correlation: Correlation,
    pub inputs: Vec<InferenceInput>,
    pub outputs: Vec<String>,
    pub on_release: Option<(TRITONSERVER_InferenceRequestReleaseFn_t, Address)>,
    pub on_response: Option<OnResponse>,
    pub traced: bool,
    pub stage: Stage,
    pub cancelled: bool,
}

/// Whose an in-process request is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The backend's, being filled.
    Filling,
    /// The server's.
    UnderWay,
    /// Given back through the release callback: the backend's, to be deleted.
    GivenBack,
}

impl InferenceObject {
    /// Whether the server may still allocate with it.
    pub fn uses(&self, allocator: usize) -> bool {
        self.stage == Stage::UnderWay && self.on_response.is_some_and(|on| on.allocator == allocator)
    }
}

impl State {
    /// A request that the backend may change: not while the server has it.
    fn mine(&mut self, request: *mut TRITONSERVER_InferenceRequest) -> Outcome<&mut InferenceObject> {
        let object = self.inferences.get(handle(request))?;
        match object.stage {
            Stage::UnderWay => Err(Refusal::Violation("the request is the server's".to_owned())),
            Stage::Filling | Stage::GivenBack => Ok(object),
        }
    }

    fn set_inference_parameter(
        &mut self,
        request: *mut TRITONSERVER_InferenceRequest,
        name: String,
        value: ParameterValue,
    ) -> Outcome {
        let object = self.mine(request)?;
        if object.parameters.iter().any(|parameter| parameter.0 == name) {
            return Err(Refusal::Violation(format!("request parameter '{name}' was set twice")));
        }
        object.parameters.push((name, value));
        Ok(())
    }
}

symbols! {
    fn TRITONSERVER_InferenceRequestNew(
        inference_request: *mut *mut TRITONSERVER_InferenceRequest, server: *mut TRITONSERVER_Server,
        model_name: *const c_char, model_version: i64
    ) |state| {
        state.servers.get(handle(server))?;
        let model = text(model_name)?;
        state.children.find(&model)?;
        put(inference_request, pointer(state.inferences.insert(InferenceObject {
            model,
            version: model_version,
            id: String::new(),
            flags: 0,
            timeout_us: 0,
            priority: 0,
            parameters: Vec::new(),
            correlation: Correlation::Number(0),
            inputs: Vec::new(),
            outputs: Vec::new(),
            on_release: None,
            on_response: None,
            traced: false,
            stage: Stage::Filling,
            cancelled: false,
        })))
    }

    fn TRITONSERVER_InferenceRequestSetId(
        inference_request: *mut TRITONSERVER_InferenceRequest, id: *const c_char
    ) |state| {
        state.mine(inference_request)?.id = text(id)?;
        Ok(())
    }

    fn TRITONSERVER_InferenceRequestSetFlags(
        inference_request: *mut TRITONSERVER_InferenceRequest, flags: u32
    ) |state| {
        state.mine(inference_request)?.flags = flags;
        Ok(())
    }

    fn TRITONSERVER_InferenceRequestSetCorrelationId(
        inference_request: *mut TRITONSERVER_InferenceRequest, correlation_id: u64
    ) |state| {
        state.mine(inference_request)?.correlation = Correlation::Number(correlation_id);
        Ok(())
    }

    fn TRITONSERVER_InferenceRequestSetCorrelationIdString(
        inference_request: *mut TRITONSERVER_InferenceRequest, correlation_id: *const c_char
    ) |state| {
        let id = Correlation::text(&text(correlation_id)?);
        state.mine(inference_request)?.correlation = id;
        Ok(())
    }

    fn TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(
        inference_request: *mut TRITONSERVER_InferenceRequest, timeout_us: u64
    ) |state| {
        state.mine(inference_request)?.timeout_us = timeout_us;
        Ok(())
    }

    fn TRITONSERVER_InferenceRequestSetPriorityUInt64(
        inference_request: *mut TRITONSERVER_InferenceRequest, priority: u64
    ) |state| {
        state.mine(inference_request)?.priority = priority;
        Ok(())
    }

    fn TRITONSERVER_InferenceRequestSetStringParameter(
        request: *mut TRITONSERVER_InferenceRequest, key: *const c_char, value: *const c_char
    ) |state| {
        let (key, value) = (text(key)?, text(value)?);
        state.set_inference_parameter(request, key, ParameterValue::String(value))
    }

    fn TRITONSERVER_InferenceRequestSetIntParameter(
        request: *mut TRITONSERVER_InferenceRequest, key: *const c_char, value: i64
    ) |state| {
        let key = text(key)?;
        state.set_inference_parameter(request, key, ParameterValue::Int(value))
    }

    fn TRITONSERVER_InferenceRequestSetBoolParameter(
        request: *mut TRITONSERVER_InferenceRequest, key: *const c_char, value: bool
    ) |state| {
        let key = text(key)?;
        state.set_inference_parameter(request, key, ParameterValue::Bool(value))
    }

    fn TRITONSERVER_InferenceRequestCancel(
        inference_request: *mut TRITONSERVER_InferenceRequest
    ) |state| {
        let object = state.inferences.get(handle(inference_request))?;
        if object.stage != Stage::UnderWay {
            return Err(Refusal::Violation("a request that is not under way was cancelled".to_owned()));
        }
        object.cancelled = true;
        CHANGED.notify_all();
        Ok(())
    }

    fn TRITONSERVER_InferenceRequestAddInput(
        inference_request: *mut TRITONSERVER_InferenceRequest, name: *const c_char,
        datatype: TRITONSERVER_DataType, shape: *const i64, dim_count: u64
    ) |state| {
        let name = text(name)?;
        let shape = match dim_count {
            0 => Vec::new(),
            _ => std::slice::from_raw_parts(shape, dim_count as usize).to_vec(),
        };
        let object = state.mine(inference_request)?;
        if object.inputs.iter().any(|input| input.name == name) {
            return Err(Refusal::Error(TRITONSERVER_ERROR_INVALID_ARG, format!("input '{name}' is there already")));
        }
        object.inputs.push(InferenceInput { name, data_type: datatype, shape, pieces: Vec::new() });
        Ok(())
    }

    fn TRITONSERVER_InferenceRequestAppendInputData(
        inference_request: *mut TRITONSERVER_InferenceRequest, name: *const c_char, base: *const c_void,
        byte_size: usize, memory_type: TRITONSERVER_MemoryType, _memory_type_id: i64
    ) |state| {
        let name = text(name)?;
        let object = state.mine(inference_request)?;
        let Some(input) = object.inputs.iter_mut().find(|input| input.name == name) else {
            return Err(Refusal::Error(TRITONSERVER_ERROR_INVALID_ARG, format!("there is no input '{name}'")));
        };
        input.pieces.push((Address(base.cast_mut()), byte_size, memory_type));
        Ok(())
    }

    fn TRITONSERVER_InferenceRequestAddRequestedOutput(
        inference_request: *mut TRITONSERVER_InferenceRequest, name: *const c_char
    ) |state| {
        let name = text(name)?;
        state.mine(inference_request)?.outputs.push(name);
        Ok(())
    }

    fn TRITONSERVER_InferenceRequestSetReleaseCallback(
        inference_request: *mut TRITONSERVER_InferenceRequest,
        request_release_fn: TRITONSERVER_InferenceRequestReleaseFn_t, request_release_userp: *mut c_void
    ) |state| {
        state.mine(inference_request)?.on_release = Some((request_release_fn, Address(request_release_userp)));
        Ok(())
    }

    fn TRITONSERVER_InferenceRequestSetResponseCallback(
        inference_request: *mut TRITONSERVER_InferenceRequest,
        response_allocator: *mut TRITONSERVER_ResponseAllocator, response_allocator_userp: *mut c_void,
        response_fn: TRITONSERVER_InferenceResponseCompleteFn_t, response_userp: *mut c_void
    ) |state| {
        state.allocators.get(handle(response_allocator))?;
        state.mine(inference_request)?.on_response = Some(OnResponse {
            allocator: handle(response_allocator),
            allocator_user: Address(response_allocator_userp),
            function: response_fn,
            user: Address(response_userp),
        });
        Ok(())
    }
}

late_symbols! {
    fn TRITONSERVER_InferenceRequestSetDoubleParameter: TRITONSERVER_InferenceRequestSetDoubleParameter_late(
        request: *mut TRITONSERVER_InferenceRequest, key: *const c_char, value: f64
    ) |state| {
        let key = text(key)?;
        state.set_inference_parameter(request, key, ParameterValue::Double(value))
    }
    also
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_InferenceRequestDelete(
    inference_request: *mut TRITONSERVER_InferenceRequest,
) -> *mut TRITONSERVER_Error {
    let delete = |state: &mut State, _| {
        state.mine(inference_request)?;
        state.inferences.end(handle(inference_request), "deleted")
    };
    consume("TRITONSERVER_InferenceRequestDelete", delete, drop)
}

/// See the ABI. The trace is the server's from here on, whether this fails or not.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_ServerInferAsync(
    server: *mut TRITONSERVER_Server,
    inference_request: *mut TRITONSERVER_InferenceRequest,
    trace: *mut TRITONSERVER_InferenceTrace,
) -> *mut TRITONSERVER_Error {
    let start = |state: &mut State, failing: bool| {
        state.servers.get(handle(server))?;
        if !trace.is_null() {
            state.traces.end(handle(trace), "handed to the server")?;
        }
        let object = state.mine(inference_request)?;
        let (Some((Some(_), _)), Some(OnResponse { function: Some(_), .. })) =
            (&object.on_release, &object.on_response)
        else {
            return Err(Refusal::Violation("a request was sent without its two callbacks".to_owned()));
        };
        if failing {
            return Ok(None);
        }
        object.stage = Stage::UnderWay;
        object.traced = !trace.is_null();
        let object = object.clone();
        let child = state.children.find(&object.model)?;
        Ok(Some((child, ChildCall::new(handle(inference_request), object))))
    };
    consume("TRITONSERVER_ServerInferAsync", start, |started| {
        if let Some((child, call)) = started {
            crate::child::start(child, call);
        }
    })
}
