//! Responses and their outputs, as the backend fills them.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

use triton_backend_api::sys::*;

use crate::answer::{OutputTensor, ParameterValue, Response};
use crate::block::Block;
use crate::factory::Common;
use crate::late::late_symbols;
use crate::state::{Outcome, Refusal, State, consume, put, symbols, text};
use crate::table::{handle, pointer};

/// What a response answers, and by whose help.
pub(crate) struct Origin {
    pub request: usize,
    pub common: Arc<Common>,
    /// Made by a factory, it may be sent after the request is released.
    pub by_factory: bool,
}

pub(crate) struct ResponseObject {
    pub origin: Origin,
    outputs: Vec<usize>,
    parameters: BTreeMap<String, ParameterValue>,
}

pub(crate) struct OutputObject {
    response: usize,
    name: String,
    data_type: TRITONSERVER_DataType,
    shape: Vec<i64>,
    block: Option<Block>,
}

impl State {
    pub fn new_response(&mut self, origin: Origin) -> usize {
        let request = origin.request;
        let response = self.responses.insert(ResponseObject {
            origin,
            outputs: Vec::new(),
            parameters: BTreeMap::new(),
        });
        self.newest_responses.insert(request, response);
        response
    }

    /// The ABI wants a response's outputs, memory included, before the next response to the same request is made.
    fn check_newest(&mut self, response: usize) -> Outcome {
        let request = self.responses.get(response)?.origin.request;
        match self.newest_responses.get(&request) {
            Some(newest) if *newest != response => {
                Err(Refusal::Violation("a response was given outputs after a newer one was made".to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn end_response(&mut self, response: usize, how: &'static str) -> Outcome<(Origin, Response)> {
        let object = self.responses.end(response, how)?;
        let mut outputs = Vec::new();
        for output in object.outputs {
            let OutputObject { name, data_type, shape, block, .. } = self.outputs.end(output, how)?;
            if block.as_ref().is_some_and(|block| !block.is_intact()) {
                self.violation(format!("the backend wrote past the memory of output '{name}'"));
            }
            let bytes = block.map(|block| block.bytes());
            outputs.push(OutputTensor { name, data_type, shape, bytes });
        }
        let parameters = object.parameters;
        let response = Response { outputs, parameters, error: None, is_final: false, lost: false };
        Ok((object.origin, response))
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
        let common = state.requests.get(request)?.common.clone();
        put(response, pointer(state.new_response(Origin { request, common, by_factory: false })))
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
        let response = handle(response);
        state.check_newest(response)?;
        let object = OutputObject { response, name, data_type: datatype, shape, block: None };
        let new = state.outputs.insert(object);
        state.responses.get(response)?.outputs.push(new);
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
        let response = state.outputs.get(handle(output))?.response;
        state.check_newest(response)?;
        let common = state.responses.get(response)?.origin.common.clone();
        let name = &state.outputs.get(handle(output))?.name;
        let place = common.places.get(name).cloned().unwrap_or_default();
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
    let delete = |state: &mut State, _| {
        let (origin, _) = state.end_response(handle(response), "deleted")?;
        Ok(origin.common.model)
    };
    consume("TRITONBACKEND_ResponseDelete", delete, crate::model::unload_if_idle)
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
        let (Origin { request, common, by_factory }, response) =
            state.end_response(handle(response), "sent")?;
        let is_final = send_flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL != 0;
        let name = state.requests.name(request);
        if !by_factory && !state.requests.is_live(request) {
            state.violation(format!("a response was sent after {name} was released"));
        }
        if state.answer(request).is_final() {
            state.violation(format!("{name} was answered after its final response"));
        }
        if !is_final && !common.decoupled {
            state.violation(format!("several responses to {name} were begun; its model is not decoupled"));
        }
        let response = Response { error, is_final, lost: failing, ..response };
        state.answer(request).responses.push(response);
        Ok(common.model)
    };
    consume("TRITONBACKEND_ResponseSend", send, crate::model::unload_if_idle)
}
