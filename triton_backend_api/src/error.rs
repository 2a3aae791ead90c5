//! Errors: a Triton error code and one message.

use std::borrow::Cow;
use std::ffi::CString;
use std::fmt;

use crate::sys;

/// Result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Triton's error codes, `TRITONSERVER_Error_Code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorCode {
    /// No better class is known.
    Unknown,
    /// A fault of this software.
    Internal,
    /// The thing asked for does not exist.
    NotFound,
    /// The caller's mistake.
    InvalidArg,
    /// Not possible now; it may be later.
    Unavailable,
    /// Understood, and not offered.
    Unsupported,
    /// It is there already.
    AlreadyExists,
    /// The caller gave the request up.
    Cancelled,
}

/// A Triton error: its code decides the HTTP or gRPC status, its message is what the client reads.
///
/// A good message names the thing, what was found and what is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: ErrorCode,
    message: Cow<'static, str>,
}

impl Error {
    /// An error of any code.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    /// [`ErrorCode::Internal`].
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// [`ErrorCode::InvalidArg`].
    pub fn invalid_arg(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::InvalidArg, message)
    }

    /// [`ErrorCode::NotFound`].
    pub fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::NotFound, message)
    }

    /// [`ErrorCode::Unavailable`].
    pub fn unavailable(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::Unavailable, message)
    }

    /// [`ErrorCode::Unsupported`].
    pub fn unsupported(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::Unsupported, message)
    }

    /// [`ErrorCode::Cancelled`].
    pub fn cancelled(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::Cancelled, message)
    }

    /// The code.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same error with `context: ` before its message.
    #[must_use]
    pub fn context(self, context: impl fmt::Display) -> Self {
        Self { code: self.code, message: format!("{context}: {}", self.message).into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl ErrorCode {
    const ALL: [(Self, u32); 8] = [
        (Self::Unknown, sys::TRITONSERVER_ERROR_UNKNOWN),
        (Self::Internal, sys::TRITONSERVER_ERROR_INTERNAL),
        (Self::NotFound, sys::TRITONSERVER_ERROR_NOT_FOUND),
        (Self::InvalidArg, sys::TRITONSERVER_ERROR_INVALID_ARG),
        (Self::Unavailable, sys::TRITONSERVER_ERROR_UNAVAILABLE),
        (Self::Unsupported, sys::TRITONSERVER_ERROR_UNSUPPORTED),
        (Self::AlreadyExists, sys::TRITONSERVER_ERROR_ALREADY_EXISTS),
        (Self::Cancelled, sys::TRITONSERVER_ERROR_CANCELLED),
    ];

    /// A code this crate does not know is [`ErrorCode::Unknown`], which is what the ABI has for that.
    pub(crate) fn from_raw(raw: u32) -> Self {
        Self::ALL.iter().find(|row| row.1 == raw).map_or(Self::Unknown, |row| row.0)
    }

    pub(crate) fn to_raw(self) -> u32 {
        Self::ALL.iter().find(|row| row.0 == self).map_or(sys::TRITONSERVER_ERROR_UNKNOWN, |row| row.1)
    }
}

impl Error {
    /// A new error object of the server, which the caller owns. Null only if the server cannot make one.
    pub(crate) fn to_raw(&self) -> *mut sys::TRITONSERVER_Error {
        // A NUL inside the text would end it early for the reader of the C string.
        let text = CString::new(self.message.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the text is NUL-terminated and copied by the server.
        unsafe { sys::TRITONSERVER_ErrorNew(self.code.to_raw(), text.as_ptr()) }
    }
}
