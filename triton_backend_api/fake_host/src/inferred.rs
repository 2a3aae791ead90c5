//! The responses to in-process requests, as the backend reads them.

use std::ffi::{CString, c_char, c_void};

use triton_backend_api::sys::*;

use crate::inference::Address;
use crate::request::ParameterObject;
use crate::state::{State, consume, out_of_bounds, put, symbols};
use crate::table::{handle, pointer};

pub(crate) struct InferredObject {
    pub model: CString,
    pub version: i64,
    pub id: CString,
    pub parameters: Vec<ParameterObject>,
    pub allocator: usize,
    pub outputs: Vec<InferredOutput>,
    pub error: Option<usize>,
}

pub(crate) struct InferredOutput {
    pub name: CString,
    pub data_type: TRITONSERVER_DataType,
    pub shape: Vec<i64>,
    pub base: Address,
    pub user: Address,
    /// What the server says its size is.
    pub byte_size: usize,
    /// What was allocated.
    pub allocated: usize,
    pub memory_type: TRITONSERVER_MemoryType,
    pub memory_type_id: i64,
}

symbols! {
    fn TRITONSERVER_InferenceResponseModel(
        inference_response: *mut TRITONSERVER_InferenceResponse, model_name: *mut *const c_char,
        model_version: *mut i64
    ) |state| {
        let object = state.inferred.get(handle(inference_response))?;
        put(model_name, object.model.as_ptr())?;
        put(model_version, object.version)
    }

    fn TRITONSERVER_InferenceResponseId(
        inference_response: *mut TRITONSERVER_InferenceResponse, request_id: *mut *const c_char
    ) |state| {
        put(request_id, state.inferred.get(handle(inference_response))?.id.as_ptr())
    }

    fn TRITONSERVER_InferenceResponseParameterCount(
        inference_response: *mut TRITONSERVER_InferenceResponse, count: *mut u32
    ) |state| {
        put(count, state.inferred.get(handle(inference_response))?.parameters.len() as u32)
    }

    fn TRITONSERVER_InferenceResponseParameter(
        inference_response: *mut TRITONSERVER_InferenceResponse, index: u32, name: *mut *const c_char,
        type_: *mut TRITONSERVER_ParameterType, vvalue: *mut *const c_void
    ) |state| {
        let parameters = &state.inferred.get(handle(inference_response))?.parameters;
        let Some(parameter) = parameters.get(index as usize) else {
            return out_of_bounds("parameter", index, parameters.len());
        };
        let (kind, value) = parameter.value();
        put(name, parameter.name())?;
        put(type_, kind)?;
        put(vvalue, value)
    }

    fn TRITONSERVER_InferenceResponseOutputCount(
        inference_response: *mut TRITONSERVER_InferenceResponse, count: *mut u32
    ) |state| {
        put(count, state.inferred.get(handle(inference_response))?.outputs.len() as u32)
    }

    fn TRITONSERVER_InferenceResponseOutput(
        inference_response: *mut TRITONSERVER_InferenceResponse, index: u32, name: *mut *const c_char,
        datatype: *mut TRITONSERVER_DataType, shape: *mut *const i64, dim_count: *mut u64,
        base: *mut *const c_void, byte_size: *mut usize, memory_type: *mut TRITONSERVER_MemoryType,
        memory_type_id: *mut i64, userp: *mut *mut c_void
    ) |state| {
        let outputs = &state.inferred.get(handle(inference_response))?.outputs;
        let Some(output) = outputs.get(index as usize) else {
            return out_of_bounds("output", index, outputs.len());
        };
        put(name, output.name.as_ptr())?;
        put(datatype, output.data_type)?;
        put(shape, output.shape.as_ptr())?;
        put(dim_count, output.shape.len() as u64)?;
        put(base, output.base.0.cast_const())?;
        put(byte_size, output.byte_size)?;
        put(memory_type, output.memory_type)?;
        put(memory_type_id, output.memory_type_id)?;
        put(userp, output.user.0)
    }

    fn TRITONSERVER_ServerModelIsReady(
        server: *mut TRITONSERVER_Server, model_name: *const c_char, model_version: i64, ready: *mut bool
    ) |state| {
        state.servers.get(handle(server))?;
        let name = crate::state::text(model_name)?;
        let _ = model_version; // children have one version, which is whichever is asked for
        put(ready, state.children.find(&name).is_ok())
    }
}

/// See the ABI. The error stays the response's.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_InferenceResponseError(
    inference_response: *mut TRITONSERVER_InferenceResponse,
) -> *mut TRITONSERVER_Error {
    let mut state = crate::state::lock();
    let error = state.inferred.get(handle(inference_response)).map(|response| response.error);
    match error {
        Ok(error) => error.map_or(std::ptr::null_mut(), pointer),
        Err(_) => {
            state.violation("TRITONSERVER_InferenceResponseError: the response is not there".to_owned());
            std::ptr::null_mut()
        }
    }
}

/// See the ABI. The response's memory goes back to its allocator.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_InferenceResponseDelete(
    inference_response: *mut TRITONSERVER_InferenceResponse,
) -> *mut TRITONSERVER_Error {
    let delete = |state: &mut State, _| {
        let object = state.inferred.end(handle(inference_response), "deleted")?;
        if let Some(error) = object.error {
            state.errors.end(error, "deleted with its response")?;
        }
        // Gone already only where the backend deleted it, which was noted then: its memory is given up.
        let release = state.allocators.get(object.allocator)?.release;
        Ok((object, release))
    };
    consume("TRITONSERVER_InferenceResponseDelete", delete, |(object, release)| {
        for output in object.outputs {
            let Some(release) = release else { continue };
            // As the server does it: what has no address is not given back.
            if output.base.0.is_null() {
                continue;
            }
            let allocator = pointer(object.allocator);
            // SAFETY: what the allocator gave, given back once, as the ABI says.
            let error = unsafe {
                let InferredOutput { base, user, allocated, memory_type, memory_type_id, .. } = output;
                release(allocator, base.0, user.0, allocated, memory_type, memory_type_id)
            };
            if let Err(e) = crate::error::take(error) {
                crate::state::lock().violation(format!("an allocator could not release: {e}"));
            }
        }
    })
}
