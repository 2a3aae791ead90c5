//! Allocators of output memory for in-process requests.

use triton_backend_api::sys::*;

use crate::state::{Refusal, State, consume, put, symbols};
use crate::table::{handle, pointer};

pub(crate) struct AllocatorObject {
    pub allocate: TRITONSERVER_ResponseAllocatorAllocFn_t,
    pub release: TRITONSERVER_ResponseAllocatorReleaseFn_t,
}

symbols! {
    fn TRITONSERVER_ResponseAllocatorNew(
        allocator: *mut *mut TRITONSERVER_ResponseAllocator,
        alloc_fn: TRITONSERVER_ResponseAllocatorAllocFn_t,
        release_fn: TRITONSERVER_ResponseAllocatorReleaseFn_t,
        _start_fn: TRITONSERVER_ResponseAllocatorStartFn_t
    ) |state| {
        if alloc_fn.is_none() || release_fn.is_none() {
            return Err(Refusal::Violation("an allocator needs both of its functions".to_owned()));
        }
        let object = AllocatorObject { allocate: alloc_fn, release: release_fn };
        put(allocator, pointer(state.allocators.insert(object)))
    }
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_ResponseAllocatorDelete(
    allocator: *mut TRITONSERVER_ResponseAllocator,
) -> *mut TRITONSERVER_Error {
    let delete = |state: &mut State, _| {
        let allocator = handle(allocator);
        let requests = state.inferences.iter().filter(|(_, request)| request.uses(allocator)).count();
        let responses = state.inferred.iter().filter(|(_, response)| response.allocator == allocator).count();
        if requests + responses > 0 {
            state.violation(format!(
                "an allocator was deleted while {requests} requests under way and {responses} responses need it"
            ));
        }
        state.allocators.end(allocator, "deleted")
    };
    consume("TRITONSERVER_ResponseAllocatorDelete", delete, drop)
}
