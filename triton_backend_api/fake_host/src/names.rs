//! The words that the server has for its numbers.

use std::ffi::{CStr, c_char};

use triton_backend_api::DataType;
use triton_backend_api::sys::*;

use crate::error::TRITONSERVER_ErrorCode;

const INVALID: &CStr = c"<invalid>";

fn word(words: &[&'static CStr], number: u32) -> *const c_char {
    words.get(number as usize).unwrap_or(&INVALID).as_ptr()
}

/// In the order of their numbers; 0 is none.
const DATA_TYPES: [&CStr; 15] = [
    INVALID, c"BOOL", c"UINT8", c"UINT16", c"UINT32", c"UINT64", c"INT8", c"INT16", c"INT32", c"INT64",
    c"FP16", c"FP32", c"FP64", c"BYTES", c"BF16",
];

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_DataTypeString(data_type: TRITONSERVER_DataType) -> *const c_char {
    word(&DATA_TYPES, data_type)
}

/// See the ABI. 0 is a variable size.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_DataTypeByteSize(data_type: TRITONSERVER_DataType) -> u32 {
    let name = DATA_TYPES.get(data_type as usize).and_then(|name| name.to_str().ok()).unwrap_or_default();
    let known = DataType::from_config(&format!("TYPE_{name}")).ok();
    known.and_then(DataType::byte_size).unwrap_or(0) as u32
}

/// See the ABI.
///
/// # Safety
/// `name` is a live string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_StringToDataType(name: *const c_char) -> TRITONSERVER_DataType {
    // SAFETY: a live string, see above.
    let name = unsafe { CStr::from_ptr(name) };
    DATA_TYPES.iter().position(|known| *known == name).unwrap_or(0) as TRITONSERVER_DataType
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_MemoryTypeString(memory_type: TRITONSERVER_MemoryType) -> *const c_char {
    word(&[c"CPU", c"CPU_PINNED", c"GPU"], memory_type)
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_InstanceGroupKindString(
    kind: TRITONSERVER_InstanceGroupKind,
) -> *const c_char {
    word(&[c"AUTO", c"CPU", c"GPU", c"MODEL"], kind)
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_ParameterTypeString(parameter_type: u32) -> *const c_char {
    word(&[c"STRING", c"INT", c"BOOL", c"BYTES", c"DOUBLE"], parameter_type)
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_ErrorCodeString(error: *mut TRITONSERVER_Error) -> *const c_char {
    let words = [
        c"Unknown",
        c"Internal",
        c"Not found",
        c"Invalid argument",
        c"Unavailable",
        c"Unsupported",
        c"Already exists",
        c"Cancelled",
    ];
    word(&words, TRITONSERVER_ErrorCode(error))
}
