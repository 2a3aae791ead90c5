//! Host memory for the outputs of in-process requests.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use crate::error::Result;
use crate::glue::boundary::boundary;
use crate::memory::{HostMemory, HostPool};
use crate::{raw, sys};

/// The allocator object the server asks for output memory, and where that memory comes from.
pub(crate) struct Allocator {
    raw: *mut sys::TRITONSERVER_ResponseAllocator,
    pool: HostPool,
}

// SAFETY: the object is immutable, and the pool may be used from any thread.
unsafe impl Send for Allocator {}
// SAFETY: as above.
unsafe impl Sync for Allocator {}

impl Allocator {
    pub fn new() -> Result<Self> {
        // SAFETY: the two functions keep the ABI's contract, see there.
        let raw = unsafe { raw::allocator_new(Some(allocate), Some(release)) }?;
        Ok(Self { raw, pool: HostPool::new(1) })
    }

    pub fn as_raw(&self) -> *mut sys::TRITONSERVER_ResponseAllocator {
        self.raw
    }

    /// Where output memory comes from.
    pub fn pool(&self) -> &HostPool {
        &self.pool
    }

    /// What [`allocate`] is to be called with.
    pub fn user(&self) -> *mut c_void {
        (&raw const self.pool).cast_mut().cast()
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
    user: *mut c_void,
    buffer: *mut *mut c_void,
    buffer_user: *mut *mut c_void,
    memory_type: *mut sys::TRITONSERVER_MemoryType,
    memory_type_id: *mut i64,
) -> *mut sys::TRITONSERVER_Error {
    boundary("output allocation", || {
        // SAFETY: the pool that `InferenceRequest::send` passed, which lives as long as the request.
        let pool = unsafe { &*user.cast_const().cast::<HostPool>() };
        let mut memory = Box::new(pool.take(byte_size)?);
        // SAFETY: the ABI passes live places for the results.
        unsafe {
            *buffer = match byte_size {
                0 => null_mut(),
                _ => memory.as_mut_slice().as_mut_ptr().cast(),
            };
            *buffer_user = Box::into_raw(memory).cast();
            *memory_type = sys::TRITONSERVER_MEMORY_CPU;
            *memory_type_id = 0;
        }
        Ok(())
    })
}

unsafe extern "C" fn release(
    _: *mut sys::TRITONSERVER_ResponseAllocator,
    _buffer: *mut c_void,
    buffer_user: *mut c_void,
    _byte_size: usize,
    _: sys::TRITONSERVER_MemoryType,
    _: i64,
) -> *mut sys::TRITONSERVER_Error {
    boundary("output release", || {
        if !buffer_user.is_null() {
            // SAFETY: what `allocate` gave with this buffer; the server gives every buffer back once.
            drop(unsafe { Box::from_raw(buffer_user.cast::<HostMemory>()) });
        }
        Ok(())
    })
}
