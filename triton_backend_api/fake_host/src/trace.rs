//! Traces.

use triton_backend_api::sys::*;

use crate::state::{Refusal, consume, put, symbols};
use crate::table::{handle, pointer};

pub(crate) struct TraceObject {
    /// Whether it is the server's own, which comes with a request and goes with it.
    pub of_request: bool,
}

symbols! {
    fn TRITONSERVER_InferenceTraceSpawnChildTrace(
        trace: *mut TRITONSERVER_InferenceTrace, child_trace: *mut *mut TRITONSERVER_InferenceTrace
    ) |state| {
        state.traces.get(handle(trace))?;
        put(child_trace, pointer(state.traces.insert(TraceObject { of_request: false })))
    }
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_InferenceTraceDelete(
    trace: *mut TRITONSERVER_InferenceTrace,
) -> *mut TRITONSERVER_Error {
    let delete = |state: &mut crate::state::State, _| {
        if state.traces.get(handle(trace))?.of_request {
            return Err(Refusal::Violation("the trace of a request was deleted".to_owned()));
        }
        state.traces.end(handle(trace), "deleted")
    };
    consume("TRITONSERVER_InferenceTraceDelete", delete, drop)
}
