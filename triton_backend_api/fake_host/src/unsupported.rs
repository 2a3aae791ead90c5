//! Calls that this host does not have. Libraries are loaded that make them, as long as they can do without: each answers
//! with UNSUPPORTED and its name. Whoever adds a call takes it from this list.

use triton_backend_api::sys::*;

use crate::HostError;
use crate::error::ErrorObject;
use crate::state::lock;
use crate::table::pointer;

fn unsupported(symbol: &str) -> *mut TRITONSERVER_Error {
    let message = format!("triton_fake_host does not have {symbol}");
    let error = ErrorObject::new(&HostError::new(TRITONSERVER_ERROR_UNSUPPORTED, message), symbol);
    pointer(lock().errors.insert(error))
}

/// In C's calling convention the caller clears up its arguments, so that none need be named.
macro_rules! unsupported {
    ($($symbol:ident,)*) => { $(
        /// Not in this host.
        #[unsafe(no_mangle)]
        pub extern "C" fn $symbol() -> *mut TRITONSERVER_Error {
            unsupported(stringify!($symbol))
        }
    )* };
}

unsupported! {
    TRITONBACKEND_InferenceResponseOutput,
    TRITONBACKEND_InferenceResponseOutputByName,
    TRITONBACKEND_ModelInstanceReportMemoryUsage,
    TRITONBACKEND_ModelReportMemoryUsage,
    TRITONBACKEND_OutputBufferAttributes,
    TRITONBACKEND_RequestOutputBufferProperties,
    TRITONBACKEND_StateBuffer,
    TRITONBACKEND_StateBufferAttributes,
    TRITONBACKEND_StateNew,
    TRITONBACKEND_StateUpdate,
    TRITONSERVER_ApiVersion,
    TRITONSERVER_BufferAttributesDelete,
    TRITONSERVER_BufferAttributesNew,
    TRITONSERVER_BufferAttributesSetByteSize,
    TRITONSERVER_BufferAttributesSetCudaIpcHandle,
    TRITONSERVER_BufferAttributesSetMemoryType,
    TRITONSERVER_BufferAttributesSetMemoryTypeId,
    TRITONSERVER_GetMetricFamilyKind,
    TRITONSERVER_GetMetricKind,
    TRITONSERVER_InferenceRequestAddRawInput,
    TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes,
    TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy,
    TRITONSERVER_InferenceRequestCorrelationId,
    TRITONSERVER_InferenceRequestCorrelationIdString,
    TRITONSERVER_InferenceRequestFlags,
    TRITONSERVER_InferenceRequestId,
    TRITONSERVER_InferenceRequestIsCancelled,
    TRITONSERVER_InferenceRequestPriority,
    TRITONSERVER_InferenceRequestPriorityUInt64,
    TRITONSERVER_InferenceRequestRemoveAllInputData,
    TRITONSERVER_InferenceRequestRemoveAllInputs,
    TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs,
    TRITONSERVER_InferenceRequestRemoveInput,
    TRITONSERVER_InferenceRequestRemoveRequestedOutput,
    TRITONSERVER_InferenceRequestSetPriority,
    TRITONSERVER_InferenceRequestTimeoutMicroseconds,
    TRITONSERVER_InferenceResponseOutputClassificationLabel,
    TRITONSERVER_InferenceTraceContext,
    TRITONSERVER_InferenceTraceId,
    TRITONSERVER_InferenceTraceModelName,
    TRITONSERVER_InferenceTraceModelVersion,
    TRITONSERVER_InferenceTraceNew,
    TRITONSERVER_InferenceTraceParentId,
    TRITONSERVER_InferenceTraceReportActivity,
    TRITONSERVER_InferenceTraceRequestId,
    TRITONSERVER_InferenceTraceSetContext,
    TRITONSERVER_InferenceTraceTensorNew,
    TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction,
    TRITONSERVER_ResponseAllocatorSetQueryFunction,
    TRITONSERVER_ServerLoadModel,
    TRITONSERVER_ServerLoadModelWithParameters,
    TRITONSERVER_ServerModelBatchProperties,
    TRITONSERVER_ServerModelTransactionProperties,
    TRITONSERVER_ServerUnloadModel,
    TRITONSERVER_ServerUnloadModelAndDependents,
}
