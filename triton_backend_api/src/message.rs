//! JSON documents that cross the ABI.

use serde_json::Value;

use crate::error::{Error, Result};
use crate::{raw, sys};

/// Reads a document that stays the server's. `what` names it in an error.
///
/// # Safety
/// `message` is live.
pub(crate) unsafe fn read(message: *mut sys::TRITONSERVER_Message, what: &str) -> Result<Value> {
    if message.is_null() {
        return Err(Error::internal(format!("the server gave no {what}")));
    }
    // SAFETY: live; the text is read before the message can go.
    unsafe {
        let (base, size) = raw::message_json(message)?;
        let bytes = if size == 0 { &[] } else { std::slice::from_raw_parts(base.cast::<u8>(), size) };
        serde_json::from_slice(bytes)
            .map_err(|e| Error::internal(format!("the server's {what} is no JSON: {e}")))
    }
}

/// Reads a document that is ours, and deletes it.
///
/// # Safety
/// `message` is live and the caller's; it is gone afterwards.
pub(crate) unsafe fn take(message: *mut sys::TRITONSERVER_Message, what: &str) -> Result<Value> {
    // SAFETY: live, deleted once, and not used after.
    unsafe {
        let value = read(message, what);
        if !message.is_null() {
            let _ = raw::message_delete(message);
        }
        value
    }
}
