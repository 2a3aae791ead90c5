//! Host memory for the outputs of in-process requests.

use std::ffi::{c_char, c_void};
use std::panic::catch_unwind;
use std::ptr::{NonNull, null_mut};

use crate::error::Result;
use crate::memory::HostMemory;
use crate::{raw, sys};

/// The allocator object the server asks for output memory.
pub(crate) struct Allocator {
    raw: *mut sys::TRITONSERVER_ResponseAllocator,
}

// SAFETY: the object is immutable, and its functions keep no state.
unsafe impl Send for Allocator {}
// SAFETY: as above.
unsafe impl Sync for Allocator {}

impl Allocator {
    pub fn new() -> Result<Self> {
        // SAFETY: the two functions keep the ABI's contract, see there.
        Ok(Self { raw: unsafe { raw::allocator_new(Some(allocate), Some(release)) }? })
    }

    pub fn as_raw(&self) -> *mut sys::TRITONSERVER_ResponseAllocator {
        self.raw
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        // SAFETY: ours; every request and response that uses it holds it alive.
        let _ = unsafe { raw::allocator_delete(self.raw) };
    }
}

/// Gives host memory, wherever the model would have liked its output. The sizes asked for come from the model.
unsafe extern "C" fn allocate(
    _: *mut sys::TRITONSERVER_ResponseAllocator,
    _tensor: *const c_char,
    byte_size: usize,
    _preferred: sys::TRITONSERVER_MemoryType,
    _preferred_id: i64,
    _user: *mut c_void,
    buffer: *mut *mut c_void,
    buffer_user: *mut *mut c_void,
    memory_type: *mut sys::TRITONSERVER_MemoryType,
    memory_type_id: *mut i64,
) -> *mut sys::TRITONSERVER_Error {
    let memory = match HostMemory::zeroed(byte_size) {
        Ok(memory) if byte_size > 0 => memory.into_raw(),
        Ok(_) => null_mut(),
        Err(e) => return e.to_raw(),
    };
    // SAFETY: the ABI passes live places for the results.
    unsafe {
        *buffer = memory.cast();
        *buffer_user = null_mut();
        *memory_type = sys::TRITONSERVER_MEMORY_CPU;
        *memory_type_id = 0;
    }
    null_mut()
}

unsafe extern "C" fn release(
    _: *mut sys::TRITONSERVER_ResponseAllocator,
    buffer: *mut c_void,
    _buffer_user: *mut c_void,
    byte_size: usize,
    _: sys::TRITONSERVER_MemoryType,
    _: i64,
) -> *mut sys::TRITONSERVER_Error {
    let _ = catch_unwind(|| {
        if let Some(base) = NonNull::new(buffer.cast()) {
            // SAFETY: what `allocate` gave for this size; the server gives every buffer back once.
            drop(unsafe { HostMemory::from_raw(base, byte_size) });
        }
    });
    null_mut()
}
