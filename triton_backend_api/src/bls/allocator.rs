//! Memory for the outputs of in-process requests.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::glue::boundary::boundary;
use crate::memory::{
    HostMemory, HostPool, MemoryKind, MemoryManager, OutputMemory, ServerMemory, StableMemory,
};
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

    /// Where host memory comes from.
    pub fn pool(&self) -> &HostPool {
        &self.pool
    }
}

/// Where the outputs of one request go: what [`allocate`] is to be called with.
pub(super) struct Placement {
    pub pool: HostPool,
    /// Memory of the caller's, which is asked first.
    pub own: Option<Arc<dyn OutputMemory>>,
    /// Memory of the server's, where it is to be that.
    pub wish: Option<(MemoryManager, Wish)>,
}

/// Which memory of the server's.
#[derive(Clone, Copy)]
pub(super) enum Wish {
    /// This one.
    Kind(MemoryKind),
    /// The one that the model would like.
    Models,
}

/// The memory of one output.
enum Given {
    Host(HostMemory),
    Server(ServerMemory),
    Own(Box<dyn StableMemory>),
}

impl Placement {
    /// The caller's own memory; without it, memory of the kind that is wished for; where that cannot be had, of the host.
    fn give(&self, byte_size: usize, preferred: MemoryKind) -> Result<Given> {
        if let Some(memory) = self.own.as_ref().and_then(|own| own.take(byte_size, preferred)) {
            let found = memory.byte_size();
            if found < byte_size {
                return Err(Error::internal(format!("{found} bytes for an output of {byte_size} bytes")));
            }
            return Ok(Given::Own(memory));
        }
        if let Some((manager, wish)) = &self.wish {
            let kind = match wish {
                Wish::Kind(kind) => *kind,
                Wish::Models => preferred,
            };
            if kind != MemoryKind::Host
                && let Ok(memory) = manager.allocate(kind, byte_size)
            {
                return Ok(Given::Server(memory));
            }
        }
        self.pool.take(byte_size).map(Given::Host)
    }
}

impl Given {
    fn place(&mut self) -> (*mut c_void, MemoryKind) {
        match self {
            Self::Host(memory) => (memory.as_mut_slice().as_mut_ptr().cast(), MemoryKind::Host),
            Self::Server(memory) => (StableMemory::as_ptr(memory).cast_mut().cast(), memory.kind()),
            Self::Own(memory) => (memory.as_ptr().cast_mut().cast(), memory.kind()),
        }
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        // SAFETY: ours; every request and response that uses it holds it alive.
        let _ = unsafe { raw::allocator_delete(self.raw) };
    }
}

/// Gives memory where the request wants its outputs. The sizes asked for come from the model.
unsafe extern "C" fn allocate(
    _: *mut sys::TRITONSERVER_ResponseAllocator,
    _tensor: *const c_char,
    byte_size: usize,
    preferred: sys::TRITONSERVER_MemoryType,
    preferred_id: i64,
    user: *mut c_void,
    buffer: *mut *mut c_void,
    buffer_user: *mut *mut c_void,
    memory_type: *mut sys::TRITONSERVER_MemoryType,
    memory_type_id: *mut i64,
) -> *mut sys::TRITONSERVER_Error {
    boundary("output allocation", || {
        // SAFETY: the placement that `InferenceRequest::send` passed, which lives until the final response came.
        let placement = unsafe { &*user.cast_const().cast::<Placement>() };
        // The server gives nothing back that has no address: an empty output gets nothing.
        let (base, kind, given) = if byte_size == 0 {
            (null_mut(), MemoryKind::Host, null_mut())
        } else {
            let preferred = MemoryKind::from_raw(preferred, preferred_id);
            let mut given = Box::new(placement.give(byte_size, preferred)?);
            let (base, kind) = given.place();
            (base, kind, Box::into_raw(given))
        };
        let (kind, id) = kind.to_raw();
        // SAFETY: the ABI passes live places for the results.
        unsafe {
            *buffer = base;
            *buffer_user = given.cast();
            *memory_type = kind;
            *memory_type_id = id;
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
            // SAFETY: what `allocate` gave with this buffer; the server gives every buffer that has an address back once.
            drop(unsafe { Box::from_raw(buffer_user.cast::<Given>()) });
        }
        Ok(())
    })
}
