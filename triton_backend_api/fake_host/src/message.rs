//! Messages: JSON documents.

use std::ffi::c_char;

use serde_json::Value;
use triton_backend_api::sys::*;

use crate::state::{Refusal, State, consume, put, symbols};
use crate::table::{handle, pointer};

pub(crate) struct MessageObject {
    pub json: Vec<u8>,
    /// Whether it stays the server's.
    pub lent: bool,
}

impl MessageObject {
    pub fn new(json: &Value) -> Self {
        Self { json: json.to_string().into_bytes(), lent: false }
    }

    pub fn lent(json: &Value) -> Self {
        Self { lent: true, ..Self::new(json) }
    }
}

symbols! {
    fn TRITONSERVER_MessageNewFromSerializedJson(
        message: *mut *mut TRITONSERVER_Message, base: *const c_char, byte_size: usize
    ) |state| {
        if base.is_null() {
            return Err(Refusal::Violation("null was passed for a document".to_owned()));
        }
        let json = std::slice::from_raw_parts(base.cast::<u8>(), byte_size).to_vec();
        put(message, pointer(state.messages.insert(MessageObject { json, lent: false })))
    }

    fn TRITONSERVER_MessageSerializeToJson(
        message: *mut TRITONSERVER_Message, base: *mut *const c_char, byte_size: *mut usize
    ) |state| {
        let object = state.messages.get(handle(message))?;
        // The server's text is followed by a zero, which its own Python backend relies on.
        object.json.push(0);
        object.json.pop();
        put(base, object.json.as_ptr().cast())?;
        put(byte_size, object.json.len())
    }
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_MessageDelete(message: *mut TRITONSERVER_Message) -> *mut TRITONSERVER_Error {
    let delete = |state: &mut State, _| {
        if state.messages.get(handle(message))?.lent {
            return Err(Refusal::Violation("a message of the server's was deleted".to_owned()));
        }
        state.messages.end(handle(message), "deleted")
    };
    consume("TRITONSERVER_MessageDelete", delete, drop)
}
