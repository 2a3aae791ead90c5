//! Messages: JSON documents.

use std::ffi::c_char;

use triton_backend_api::sys::*;

use crate::state::{Refusal, consume, put, symbols};
use crate::table::{handle, pointer};

pub(crate) struct MessageObject {
    pub json: Vec<u8>,
}

symbols! {
    fn TRITONSERVER_MessageNewFromSerializedJson(
        message: *mut *mut TRITONSERVER_Message, base: *const c_char, byte_size: usize
    ) |state| {
        if base.is_null() {
            return Err(Refusal::Violation("null was passed for a document".to_owned()));
        }
        let json = std::slice::from_raw_parts(base.cast::<u8>(), byte_size).to_vec();
        put(message, pointer(state.messages.insert(MessageObject { json })))
    }

    fn TRITONSERVER_MessageSerializeToJson(
        message: *mut TRITONSERVER_Message, base: *mut *const c_char, byte_size: *mut usize
    ) |state| {
        let object = state.messages.get(handle(message))?;
        put(base, object.json.as_ptr().cast())?;
        put(byte_size, object.json.len())
    }
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_MessageDelete(message: *mut TRITONSERVER_Message) -> *mut TRITONSERVER_Error {
    consume("TRITONSERVER_MessageDelete", |state, _| state.messages.end(handle(message), "deleted"), drop)
}
