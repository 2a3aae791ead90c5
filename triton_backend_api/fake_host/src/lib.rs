//! A host for tests: it defines the `TRITON*` symbols that the server provides in production, so that test
//! executables of this workspace link and run without a server.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::null_mut;

use triton_backend_api::sys::*;

struct ErrorObject {
    code: TRITONSERVER_Error_Code,
    message: CString,
}

/// See the ABI.
///
/// # Safety
/// As the ABI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ErrorNew(
    code: TRITONSERVER_Error_Code,
    msg: *const c_char,
) -> *mut TRITONSERVER_Error {
    // SAFETY: the ABI passes a live string.
    let message = unsafe { CStr::from_ptr(msg) }.to_owned();
    Box::into_raw(Box::new(ErrorObject { code, message })).cast()
}

/// See the ABI.
///
/// # Safety
/// As the ABI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ErrorDelete(error: *mut TRITONSERVER_Error) {
    // SAFETY: made by `TRITONSERVER_ErrorNew`, deleted once.
    drop(unsafe { Box::from_raw(error.cast::<ErrorObject>()) });
}

/// See the ABI.
///
/// # Safety
/// As the ABI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ErrorCode(error: *mut TRITONSERVER_Error) -> TRITONSERVER_Error_Code {
    // SAFETY: made by `TRITONSERVER_ErrorNew`, and live.
    unsafe { (*error.cast::<ErrorObject>()).code }
}

/// See the ABI.
///
/// # Safety
/// As the ABI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ErrorMessage(error: *mut TRITONSERVER_Error) -> *const c_char {
    // SAFETY: made by `TRITONSERVER_ErrorNew`, and live.
    unsafe { (*error.cast::<ErrorObject>()).message.as_ptr() }
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_LogIsEnabled(_: TRITONSERVER_LogLevel) -> bool {
    true
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_LogMessage(
    _: TRITONSERVER_LogLevel,
    _: *const c_char,
    _: c_int,
    _: *const c_char,
) -> *mut TRITONSERVER_Error {
    null_mut()
}

/// Calls that this host does not answer yet; callers get an error, whatever they pass.
macro_rules! unanswered {
    ($($symbol:ident),* $(,)?) => { $(
        /// See the ABI.
        #[unsafe(no_mangle)]
        pub extern "C" fn $symbol() -> *mut TRITONSERVER_Error {
            let message = CString::from(c"the fake host does not answer this call yet");
            Box::into_raw(Box::new(ErrorObject { code: TRITONSERVER_ERROR_UNSUPPORTED, message })).cast()
        }
    )* };
}

unanswered! {
    TRITONSERVER_MessageNewFromSerializedJson,
    TRITONSERVER_MessageDelete,
    TRITONSERVER_MessageSerializeToJson,
    TRITONSERVER_ResponseAllocatorNew,
    TRITONSERVER_ResponseAllocatorDelete,
    TRITONSERVER_InferenceRequestNew,
    TRITONSERVER_InferenceRequestDelete,
    TRITONSERVER_InferenceRequestSetId,
    TRITONSERVER_InferenceRequestSetFlags,
    TRITONSERVER_InferenceRequestSetCorrelationId,
    TRITONSERVER_InferenceRequestSetCorrelationIdString,
    TRITONSERVER_InferenceRequestSetTimeoutMicroseconds,
    TRITONSERVER_InferenceRequestCancel,
    TRITONSERVER_InferenceRequestAddInput,
    TRITONSERVER_InferenceRequestAppendInputData,
    TRITONSERVER_InferenceRequestAddRequestedOutput,
    TRITONSERVER_InferenceRequestSetReleaseCallback,
    TRITONSERVER_InferenceRequestSetResponseCallback,
    TRITONSERVER_ServerInferAsync,
    TRITONSERVER_InferenceResponseDelete,
    TRITONSERVER_InferenceResponseError,
    TRITONSERVER_InferenceResponseModel,
    TRITONSERVER_InferenceResponseOutputCount,
    TRITONSERVER_InferenceResponseOutput,
    TRITONSERVER_ServerModelIsReady,
    TRITONSERVER_InferenceTraceSpawnChildTrace,
    TRITONSERVER_InferenceTraceDelete,
    TRITONBACKEND_ApiVersion,
    TRITONBACKEND_BackendName,
    TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup,
    TRITONBACKEND_ModelName,
    TRITONBACKEND_ModelVersion,
    TRITONBACKEND_ModelRepository,
    TRITONBACKEND_ModelConfig,
    TRITONBACKEND_ModelAutoCompleteConfig,
    TRITONBACKEND_ModelSetConfig,
    TRITONBACKEND_ModelServer,
    TRITONBACKEND_ModelState,
    TRITONBACKEND_ModelSetState,
    TRITONBACKEND_ModelInstanceName,
    TRITONBACKEND_ModelInstanceKind,
    TRITONBACKEND_ModelInstanceDeviceId,
    TRITONBACKEND_ModelInstanceModel,
    TRITONBACKEND_ModelInstanceState,
    TRITONBACKEND_ModelInstanceSetState,
    TRITONBACKEND_ModelInstanceReportStatistics,
    TRITONBACKEND_ModelInstanceReportBatchStatistics,
    TRITONBACKEND_RequestId,
    TRITONBACKEND_RequestIsCancelled,
    TRITONBACKEND_RequestCorrelationId,
    TRITONBACKEND_RequestCorrelationIdString,
    TRITONBACKEND_RequestFlags,
    TRITONBACKEND_InferenceRequestTimeoutMicroseconds,
    TRITONBACKEND_RequestInputCount,
    TRITONBACKEND_RequestInput,
    TRITONBACKEND_RequestInputByIndex,
    TRITONBACKEND_RequestOutputCount,
    TRITONBACKEND_RequestOutputName,
    TRITONBACKEND_RequestTrace,
    TRITONBACKEND_RequestRelease,
    TRITONBACKEND_InputProperties,
    TRITONBACKEND_InputBuffer,
    TRITONBACKEND_ResponseNew,
    TRITONBACKEND_ResponseDelete,
    TRITONBACKEND_ResponseSetStringParameter,
    TRITONBACKEND_ResponseSetIntParameter,
    TRITONBACKEND_ResponseSetBoolParameter,
    TRITONBACKEND_ResponseOutput,
    TRITONBACKEND_OutputBuffer,
    TRITONBACKEND_ResponseSend,
}
