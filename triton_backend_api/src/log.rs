//! The server's log. A message that cannot be written is dropped: logging never fails a request.

use std::ffi::CString;

use crate::{raw, sys};

/// The server's log levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Worth knowing.
    Info,
    /// Something is off, and was handled.
    Warn,
    /// Something failed.
    Error,
    /// For those who look for a fault.
    Verbose,
}

impl Level {
    fn to_raw(self) -> u32 {
        match self {
            Self::Info => sys::TRITONSERVER_LOG_INFO,
            Self::Warn => sys::TRITONSERVER_LOG_WARN,
            Self::Error => sys::TRITONSERVER_LOG_ERROR,
            Self::Verbose => sys::TRITONSERVER_LOG_VERBOSE,
        }
    }
}

/// Whether the server writes messages of this level.
pub fn enabled(level: Level) -> bool {
    // SAFETY: takes a plain value.
    unsafe { sys::TRITONSERVER_LogIsEnabled(level.to_raw()) }
}

/// Writes a message. The macro [`log!`](crate::log!) is the way to call it: it adds the place and formats
/// only what is written.
pub fn write(level: Level, file: &str, line: u32, message: &str) {
    let file = CString::new(file.rsplit('/').next().unwrap_or(file)).unwrap_or_default();
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    // SAFETY: both strings are NUL-terminated and live through the call.
    let _ = unsafe { raw::log_message(level.to_raw(), file.as_ptr(), line as i32, message.as_ptr()) };
}

/// `log!(Info, "loaded {name}")`: writes a line to the server's log where its level is enabled.
#[macro_export]
macro_rules! log {
    ($level:ident, $($message:tt)+) => {
        if $crate::log::enabled($crate::log::Level::$level) {
            $crate::log::write($crate::log::Level::$level, file!(), line!(), &format!($($message)+));
        }
    };
}
