//! Error objects.

use std::ffi::{CString, c_char};
use std::fmt;

use triton_backend_api::sys::*;

use crate::state::{Outcome, Refusal, State, lock, text};
use crate::table::{handle, pointer};

/// An error as the server gets it from a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostError {
    /// Its code, as the ABI numbers it.
    pub code: TRITONSERVER_Error_Code,
    /// Its text.
    pub message: String,
}

impl HostError {
    /// An error of that code and text.
    pub fn new(code: TRITONSERVER_Error_Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}: {}", self.code, self.message)
    }
}

impl std::error::Error for HostError {}

pub(crate) struct ErrorObject {
    code: TRITONSERVER_Error_Code,
    message: CString,
    maker: String,
    /// Whether it is part of an in-process response, which the backend may look at but not delete.
    pub lent: bool,
}

impl ErrorObject {
    pub fn new(error: &HostError, maker: &str) -> Self {
        let message = CString::new(error.message.replace('\0', " ")).unwrap_or_default();
        Self { code: error.code, message, maker: maker.to_owned(), lent: false }
    }

    pub fn read(&self) -> HostError {
        HostError { code: self.code, message: self.message.to_string_lossy().into_owned() }
    }

    pub fn describe(&self) -> String {
        format!("{} (from {})", self.read(), self.maker)
    }
}

impl State {
    /// Reads an error object that the backend passes and keeps.
    pub fn peek_error(&mut self, error: *mut TRITONSERVER_Error) -> Outcome<Option<HostError>> {
        match error.is_null() {
            true => Ok(None),
            false => Ok(Some(self.errors.get(handle(error))?.read())),
        }
    }
}

/// Takes over an error object that the backend returns.
pub(crate) fn take(error: *mut TRITONSERVER_Error) -> Result<(), HostError> {
    if error.is_null() {
        return Ok(());
    }
    let mut state = lock();
    match state.errors.end(handle(error), "returned to the server") {
        Ok(error) => Err(error.read()),
        Err(Refusal::Violation(what) | Refusal::Error(_, what)) => {
            state.violation(format!("an entry point returned what is no error: {what}"));
            Err(HostError::new(TRITONSERVER_ERROR_UNKNOWN, what))
        }
    }
}

/// For calls that cannot fail: what they find wrong is only noted.
fn note<T: Copy>(symbol: &str, fallback: T, body: impl FnOnce(&mut State) -> Outcome<T>) -> T {
    let mut state = lock();
    *state.calls.entry("errors").or_default() += 1;
    match body(&mut state) {
        Ok(value) => value,
        Err(Refusal::Violation(what) | Refusal::Error(_, what)) => {
            state.violation(format!("{symbol}: {what}"));
            fallback
        }
    }
}

/// See the ABI.
///
/// # Safety
/// `msg` is a live string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ErrorNew(
    code: TRITONSERVER_Error_Code,
    msg: *const c_char,
) -> *mut TRITONSERVER_Error {
    note("TRITONSERVER_ErrorNew", std::ptr::null_mut(), |state| {
        // SAFETY: a live string, see above.
        let error = HostError { code, message: unsafe { text(msg) }? };
        Ok(pointer(state.errors.insert(ErrorObject::new(&error, "the backend"))))
    })
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_ErrorDelete(error: *mut TRITONSERVER_Error) {
    note("TRITONSERVER_ErrorDelete", (), |state| {
        if state.errors.get(handle(error))?.lent {
            return Err(Refusal::Violation("the error of a response was deleted".to_owned()));
        }
        state.errors.end(handle(error), "deleted").map(|_| ())
    });
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_ErrorCode(error: *mut TRITONSERVER_Error) -> TRITONSERVER_Error_Code {
    note("TRITONSERVER_ErrorCode", TRITONSERVER_ERROR_UNKNOWN, |state| {
        Ok(state.errors.get(handle(error))?.code)
    })
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_ErrorMessage(error: *mut TRITONSERVER_Error) -> *const c_char {
    note("TRITONSERVER_ErrorMessage", c"".as_ptr(), |state| {
        Ok(state.errors.get(handle(error))?.message.as_ptr())
    })
}
