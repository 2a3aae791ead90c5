//! The one place where Rust results and panics become C errors.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result};
use crate::sys::TRITONSERVER_Error;

/// Runs an entry point's body. A panic becomes an INTERNAL error; should anything unwind beyond this, the
/// `extern "C"` of the entry point aborts the process rather than unwind into C.
pub(crate) fn boundary(stage: &str, body: impl FnOnce() -> Result<()>) -> *mut TRITONSERVER_Error {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => std::ptr::null_mut(),
        Ok(Err(e)) => e.to_raw(),
        Err(panic) => panic_error(stage, &*panic).to_raw(),
    }
}

/// The error that a panic in the author's code becomes.
pub(crate) fn panic_error(stage: &str, panic: &(dyn Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    Error::internal(format!("fault in {stage}: {text}"))
}
