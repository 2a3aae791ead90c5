//! Where an input's buffer lies, as an object: what C++ backends ask for.

use std::ffi::{c_char, c_void};

use triton_backend_api::sys::*;

use crate::state::{out_of_bounds, put, symbols_without_declaration};
use crate::table::{handle, pointer};

/// A handle's type: the server's own, which the crate under test does not use.
#[repr(C)]
pub struct TRITONSERVER_BufferAttributes {
    opaque: [u8; 0],
}

pub(crate) struct AttributesObject {
    byte_size: usize,
    memory_type: TRITONSERVER_MemoryType,
    memory_type_id: i64,
}

symbols_without_declaration! {
    fn TRITONBACKEND_InputBufferAttributes(
        input: *mut TRITONBACKEND_Input, index: u32, buffer: *mut *const c_void,
        buffer_attributes: *mut *mut TRITONSERVER_BufferAttributes
    ) |state| {
        let object = state.inputs.get(handle(input))?;
        let count = object.buffers.len();
        let Some(block) = object.buffers.get_mut(index as usize) else {
            return out_of_bounds("buffer", index, count);
        };
        put(buffer, block.as_mut_ptr().cast_const().cast())?;
        let (byte_size, memory_type, memory_type_id) = (block.byte_size(), block.memory_type, block.memory_type_id);
        // The server's own, which live as long as it does.
        let new = state.buffer_attributes.insert(AttributesObject { byte_size, memory_type, memory_type_id });
        put(buffer_attributes, pointer(new))
    }

    fn TRITONSERVER_BufferAttributesByteSize(
        buffer_attributes: *mut TRITONSERVER_BufferAttributes, byte_size: *mut usize
    ) |state| {
        put(byte_size, state.buffer_attributes.get(handle(buffer_attributes))?.byte_size)
    }

    fn TRITONSERVER_BufferAttributesMemoryType(
        buffer_attributes: *mut TRITONSERVER_BufferAttributes, memory_type: *mut TRITONSERVER_MemoryType
    ) |state| {
        put(memory_type, state.buffer_attributes.get(handle(buffer_attributes))?.memory_type)
    }

    fn TRITONSERVER_BufferAttributesMemoryTypeId(
        buffer_attributes: *mut TRITONSERVER_BufferAttributes, memory_type_id: *mut i64
    ) |state| {
        put(memory_type_id, state.buffer_attributes.get(handle(buffer_attributes))?.memory_type_id)
    }

    fn TRITONSERVER_BufferAttributesCudaIpcHandle(
        buffer_attributes: *mut TRITONSERVER_BufferAttributes, cuda_ipc_handle: *mut *mut c_void
    ) |state| {
        state.buffer_attributes.get(handle(buffer_attributes))?;
        put(cuda_ipc_handle, std::ptr::null_mut())
    }

    fn TRITONBACKEND_RequestInputName(
        request: *mut TRITONBACKEND_Request, index: u32, input_name: *mut *const c_char
    ) |state| {
        let inputs = &state.requests.get(handle(request))?.inputs;
        let Some(input) = inputs.get(index as usize).copied() else {
            return out_of_bounds("input", index, inputs.len());
        };
        put(input_name, state.inputs.get(input)?.name.as_ptr())
    }
}
