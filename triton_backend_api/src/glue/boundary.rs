//! The one place where Rust results and panics become C errors.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result};
use crate::sys::TRITONSERVER_Error;

/// Runs an entry point's body. A panic becomes an INTERNAL error; should anything unwind beyond this, the
/// `extern "C"` of the entry point aborts the process rather than unwind into C.
pub(crate) fn boundary(stage: &str, body: impl FnOnce() -> Result<()>) -> *mut TRITONSERVER_Error {
    catch(stage, body).map_or_else(|e| e.to_raw(), |()| std::ptr::null_mut())
}

/// Runs code of the author's: a panic becomes an INTERNAL error.
pub(crate) fn catch<T>(stage: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(panic_error(stage, &*panic)))
}

/// The error that a panic in the author's code becomes.
fn panic_error(stage: &str, panic: &(dyn Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    Error::internal(format!("fault in {stage}: {text}"))
}
