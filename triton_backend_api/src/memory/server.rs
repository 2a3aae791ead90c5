//! Memory of the server's: its pools of pinned and GPU memory, and ordinary host memory.

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::data_type::Element;
use crate::device::{DeviceSlice, DeviceSliceMut};
use crate::error::{Error, ErrorCode, Result};
use crate::memory::{MemoryKind, StableMemory};
use crate::{raw, sys};

/// The server's memory manager. It has the pools that `--pinned-memory-pool-byte-size` and
/// `--cuda-memory-pool-byte-size` size. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct MemoryManager(NonNull<sys::TRITONBACKEND_MemoryManager>);

// SAFETY: the server's calls may be made from any thread.
unsafe impl Send for MemoryManager {}
// SAFETY: as above.
unsafe impl Sync for MemoryManager {}

impl MemoryManager {
    /// # Safety
    /// `backend` is a live backend of the server's. Its manager outlives everything of the backend's.
    pub(crate) unsafe fn of(backend: *mut sys::TRITONBACKEND_Backend) -> Result<Self> {
        // SAFETY: a live backend.
        let manager = unsafe { raw::backend_memory_manager(backend) }?;
        NonNull::new(manager).map(Self).ok_or_else(|| Error::internal("the backend has no memory manager"))
    }

    /// Memory of exactly this kind; dropping it gives it back. Host and pinned memory starts as zeros, which costs a
    /// pass over it: keep it for later requests. A GPU's holds anything.
    ///
    /// Errors: `Unsupported` where the server can never give this kind (no GPU, an unknown kind), `Unavailable` where
    /// it cannot now. Triton's core reports an empty pinned pool as `Internal`. Zero bytes always succeed.
    pub fn allocate(&self, kind: MemoryKind, byte_size: usize) -> Result<ServerMemory> {
        let wrong = |code, why: &str| Error::new(code, format!("{byte_size} bytes of {kind}: {why}"));
        if let MemoryKind::Unknown(_) = kind {
            return Err(wrong(ErrorCode::Unsupported, "accepted are host, pinned and GPU memory"));
        }
        if isize::try_from(byte_size).is_err() {
            return Err(wrong(ErrorCode::InvalidArg, "more than an address space holds"));
        }
        if byte_size == 0 {
            return Ok(ServerMemory { base: None, byte_size, kind, manager: *self });
        }
        let (memory_type, id) = kind.to_raw();
        // SAFETY: the live manager.
        let buffer = unsafe { raw::memory_allocate(self.0.as_ptr(), byte_size, memory_type, id) }
            .map_err(|e| e.context(format!("{byte_size} bytes of {kind}")))?;
        let base = NonNull::new(buffer.base.cast::<u8>())
            .ok_or_else(|| wrong(ErrorCode::Unavailable, "the server gave none"))?;
        if kind.is_host() {
            // SAFETY: fresh host memory of that size, which nobody else knows.
            unsafe { base.write_bytes(0, byte_size) };
        }
        Ok(ServerMemory { base: Some(base), byte_size, kind, manager: *self })
    }
}

/// Memory that belongs to its holder and came from the server: host, pinned or a GPU's. Freed when it is dropped.
///
/// It can be the input of an in-process request ([`StableMemory`]). What a GPU still does with it has to be done before it
/// is dropped or handed on: the server knows nothing of streams.
#[derive(Debug)]
pub struct ServerMemory {
    /// None for no bytes.
    base: Option<NonNull<u8>>,
    byte_size: usize,
    kind: MemoryKind,
    manager: MemoryManager,
}

// SAFETY: plain memory with one owner; on a GPU it is tied to no thread either.
unsafe impl Send for ServerMemory {}
// SAFETY: shared access only reads.
unsafe impl Sync for ServerMemory {}

impl ServerMemory {
    /// Where it lies: exactly where it was asked for.
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Its size in bytes.
    pub fn byte_size(&self) -> usize {
        self.byte_size
    }

    fn address<T>(&self) -> *mut T {
        self.base.map_or(NonNull::dangling().as_ptr(), |base| base.as_ptr().cast())
    }

    fn out_of_reach(&self, why: impl std::fmt::Display) -> Error {
        Error::unsupported(format!("{} bytes of {}: {why}", self.byte_size, self.kind))
    }

    /// Whether the CPU may see it as elements of `T`; a remainder too short for one is left out.
    fn host_elements<T: Element>(&self) -> Result<usize> {
        if !self.kind.is_host() {
            return Err(self.out_of_reach("only host memory can be read and written here"));
        }
        if !self.address::<T>().is_aligned() {
            return Err(self.out_of_reach(format_args!("not aligned for {}", T::DATA_TYPE)));
        }
        Ok(self.byte_size / size_of::<T>())
    }

    /// Its elements; a remainder too short for one is left out. Errors: `Unsupported` where the CPU cannot read it.
    pub fn elements<T: Element>(&self) -> Result<&[T]> {
        let count = self.host_elements::<T>()?;
        // SAFETY: so many elements of initialised host memory that is ours, aligned; every bit pattern is a value of T.
        Ok(unsafe { std::slice::from_raw_parts(self.address(), count) })
    }

    /// Its elements, to be written. Errors as for [`Self::elements`].
    pub fn elements_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        let count = self.host_elements::<T>()?;
        // SAFETY: as above, and borrowed uniquely.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.address(), count) })
    }

    /// Its elements on a GPU, to be read there. Errors: `Unsupported` where it is not a GPU's.
    pub fn device<T: Element>(&self) -> Result<DeviceSlice<'_, T>> {
        let base = self.address::<T>();
        let device = self.kind.device_of::<T>(base.cast()).map_err(|why| self.out_of_reach(why))?;
        // SAFETY: memory of that GPU that is ours, aligned, and only changed through `&mut`.
        Ok(unsafe { DeviceSlice::new(base, self.byte_size / size_of::<T>(), device) })
    }

    /// Its elements on a GPU, to be written there. Errors as for [`Self::device`].
    pub fn device_mut<T: Element>(&mut self) -> Result<DeviceSliceMut<'_, T>> {
        let base = self.address::<T>();
        let device = self.kind.device_of::<T>(base.cast()).map_err(|why| self.out_of_reach(why))?;
        // SAFETY: memory of that GPU that is ours, aligned, and borrowed uniquely.
        Ok(unsafe { DeviceSliceMut::new(base, self.byte_size / size_of::<T>(), device) })
    }
}

impl Drop for ServerMemory {
    fn drop(&mut self) {
        let Some(base) = self.base else { return };
        let (memory_type, id) = self.kind.to_raw();
        // SAFETY: allocated there with this type and id, and freed once.
        let freed = unsafe {
            raw::memory_free(self.manager.0.as_ptr(), base.as_ptr().cast::<c_void>(), memory_type, id)
        };
        if let Err(e) = freed {
            crate::log!(Warn, "{} bytes of {} could not be freed: {e}", self.byte_size, self.kind);
        }
    }
}

// SAFETY: the block does not move with the value, and nothing changes it without `&mut`.
unsafe impl StableMemory for ServerMemory {
    fn as_ptr(&self) -> *const u8 {
        self.address()
    }
    fn byte_size(&self) -> usize {
        self.byte_size
    }
    fn kind(&self) -> MemoryKind {
        self.kind
    }
}
