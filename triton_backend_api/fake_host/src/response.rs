//! Responses and their outputs, as the backend fills them.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};

use triton_backend_api::sys::*;

use crate::answer::{OutputTensor, ParameterValue, Response};
use crate::block::Block;
use crate::late::late_symbols;
use crate::state::{Outcome, Refusal, State, consume, put, symbols, text};
use crate::table::{handle, pointer};

pub(crate) struct ResponseObject {
    pub request: usize,
    outputs: Vec<usize>,
    parameters: BTreeMap<String, ParameterValue>,
}

pub(crate) struct OutputObject {
    request: usize,
    name: String,
    data_type: TRITONSERVER_DataType,
    shape: Vec<i64>,
    block: Option<Block>,
}

impl State {
    fn end_response(&mut self, response: usize, how: &'static str) -> Outcome<(usize, Response)> {
        let object = self.responses.end(response, how)?;
        let mut outputs = Vec::new();
        for output in object.outputs {
            let OutputObject { name, data_type, shape, block, .. } = self.outputs.end(output, how)?;
            if block.as_ref().is_some_and(|block| !block.is_intact()) {
                self.violation(format!("the backend wrote past the memory of output '{name}'"));
            }
            let bytes = block.map(|block| block.bytes().to_vec());
            outputs.push(OutputTensor { name, data_type, shape, bytes });
        }
        let parameters = object.parameters;
        let response = Response { outputs, parameters, error: None, is_final: false, lost: false };
        Ok((object.request, response))
    }

    fn set_parameter(
        &mut self,
        response: *mut TRITONBACKEND_Response,
        name: String,
        value: ParameterValue,
    ) -> Outcome {
        let object = self.responses.get(handle(response))?;
        match object.parameters.insert(name.clone(), value) {
            None => Ok(()),
            Some(_) => Err(Refusal::Violation(format!("response parameter '{name}' was set twice"))),
        }
    }
}

symbols! {
    fn TRITONBACKEND_ResponseNew(
        response: *mut *mut TRITONBACKEND_Response, request: *mut TRITONBACKEND_Request
    ) |state| {
        let request = handle(request);
        state.requests.get(request)?;
        let object = ResponseObject { request, outputs: Vec::new(), parameters: BTreeMap::new() };
        put(response, pointer(state.responses.insert(object)))
    }

    fn TRITONBACKEND_ResponseSetStringParameter(
        response: *mut TRITONBACKEND_Response, name: *const c_char, value: *const c_char
    ) |state| {
        let (name, value) = (text(name)?, text(value)?);
        state.set_parameter(response, name, ParameterValue::String(value))
    }

    fn TRITONBACKEND_ResponseSetIntParameter(
        response: *mut TRITONBACKEND_Response, name: *const c_char, value: i64
    ) |state| {
        let name = text(name)?;
        state.set_parameter(response, name, ParameterValue::Int(value))
    }

    fn TRITONBACKEND_ResponseSetBoolParameter(
        response: *mut TRITONBACKEND_Response, name: *const c_char, value: bool
    ) |state| {
        let name = text(name)?;
        state.set_parameter(response, name, ParameterValue::Bool(value))
    }

    fn TRITONBACKEND_ResponseOutput(
        response: *mut TRITONBACKEND_Response, output: *mut *mut TRITONBACKEND_Output, name: *const c_char,
        datatype: TRITONSERVER_DataType, shape: *const i64, dims_count: u32
    ) |state| {
        let name = text(name)?;
        let shape = match dims_count {
            0 => Vec::new(),
            _ => std::slice::from_raw_parts(shape, dims_count as usize).to_vec(),
        };
        let request = state.responses.get(handle(response))?.request;
        let object = OutputObject { request, name, data_type: datatype, shape, block: None };
        let new = state.outputs.insert(object);
        state.responses.get(handle(response))?.outputs.push(new);
        put(output, pointer(new))
    }

    fn TRITONBACKEND_OutputBuffer(
        output: *mut TRITONBACKEND_Output, buffer: *mut *mut c_void, buffer_byte_size: u64,
        memory_type: *mut TRITONSERVER_MemoryType, memory_type_id: *mut i64
    ) |state| {
        if memory_type.is_null() || memory_type_id.is_null() {
            return Err(Refusal::Violation("no preferred memory type was passed".to_owned()));
        }
        let preferred = (*memory_type, *memory_type_id);
        let OutputObject { request, ref name, .. } = *state.outputs.get(handle(output))?;
        let place = state.requests.get(request)?.places.get(name.as_str()).cloned().unwrap_or_default();
        let object = state.outputs.get(handle(output))?;
        if object.block.is_some() {
            return Err(Refusal::Error(
                TRITONSERVER_ERROR_ALREADY_EXISTS,
                format!("output '{}' has its memory already", object.name),
            ));
        }
        let byte_size = usize::try_from(buffer_byte_size).unwrap_or(usize::MAX);
        let block = Block::new(byte_size, place.misalign, place.memory.unwrap_or(preferred));
        let block = object.block.insert(block);
        put(buffer, match byte_size {
            0 => std::ptr::null_mut(),
            _ => block.as_mut_ptr().cast(),
        })?;
        put(memory_type, block.memory_type)?;
        put(memory_type_id, block.memory_type_id)
    }
}

late_symbols! {
    fn TRITONBACKEND_ResponseSetDoubleParameter: TRITONBACKEND_ResponseSetDoubleParameter_late(
        response: *mut TRITONBACKEND_Response, name: *const c_char, value: f64
    ) |state| {
        let name = text(name)?;
        state.set_parameter(response, name, ParameterValue::Double(value))
    }
    also
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONBACKEND_ResponseDelete(
    response: *mut TRITONBACKEND_Response,
) -> *mut TRITONSERVER_Error {
    let delete = |state: &mut State, _| state.end_response(handle(response), "deleted");
    consume("TRITONBACKEND_ResponseDelete", delete, drop)
}

/// See the ABI. The response is consumed also where sending it fails; the error stays the caller's.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONBACKEND_ResponseSend(
    response: *mut TRITONBACKEND_Response,
    send_flags: u32,
    error: *mut TRITONSERVER_Error,
) -> *mut TRITONSERVER_Error {
    let send = |state: &mut State, failing: bool| {
        let error = state.peek_error(error)?;
        let (request, response) = state.end_response(handle(response), "sent")?;
        let is_final = send_flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL != 0;
        let name = state.requests.name(request);
        if !state.requests.is_live(request) {
            state.violation(format!("a response was sent after {name} was released"));
        }
        if state.answer(request).is_final() {
            state.violation(format!("{name} was answered after its final response"));
        }
        let response = Response { error, is_final, lost: failing, ..response };
        state.answer(request).responses.push(response);
        Ok(())
    };
    consume("TRITONBACKEND_ResponseSend", send, drop)
}
