//! The server's log.

use std::ffi::{c_char, c_int};

use triton_backend_api::sys::*;

use crate::state::{lock, symbols, text};

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Its level, as the ABI numbers it.
    pub level: TRITONSERVER_LogLevel,
    /// The source file that wrote it.
    pub file: String,
    /// The line there.
    pub line: i32,
    /// Its text.
    pub message: String,
}

#[derive(Default)]
pub(crate) struct Log {
    pub lines: Vec<LogLine>,
    /// Levels that are switched off.
    pub silent: Vec<TRITONSERVER_LogLevel>,
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_LogIsEnabled(level: TRITONSERVER_LogLevel) -> bool {
    !lock().log.silent.contains(&level)
}

symbols! {
    fn TRITONSERVER_LogMessage(
        level: TRITONSERVER_LogLevel, filename: *const c_char, line: c_int, msg: *const c_char
    ) |state| {
        let line = LogLine { level, file: text(filename)?, line, message: text(msg)? };
        state.log.lines.push(line);
        Ok(())
    }
}
