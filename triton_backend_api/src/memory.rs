//! Where tensors lie, and memory that outlives a call.

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::{raw, sys};

/// The kind of memory a buffer lies in, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Ordinary host memory.
    Host,
    /// Page-locked host memory.
    Pinned,
    /// Memory of the GPU with this number.
    Gpu(i64),
    /// A kind this crate does not know, as the server numbers it.
    Unknown(u32),
}

impl MemoryKind {
    pub(crate) fn from_raw(memory_type: u32, id: i64) -> Self {
        match memory_type {
            sys::TRITONSERVER_MEMORY_CPU => Self::Host,
            sys::TRITONSERVER_MEMORY_CPU_PINNED => Self::Pinned,
            sys::TRITONSERVER_MEMORY_GPU => Self::Gpu(id),
            other => Self::Unknown(other),
        }
    }

    pub(crate) fn to_raw(self) -> (u32, i64) {
        match self {
            Self::Host => (sys::TRITONSERVER_MEMORY_CPU, 0),
            Self::Pinned => (sys::TRITONSERVER_MEMORY_CPU_PINNED, 0),
            Self::Gpu(id) => (sys::TRITONSERVER_MEMORY_GPU, id),
            Self::Unknown(other) => (other, 0),
        }
    }

    /// Whether the CPU can read and write it.
    pub fn is_host(self) -> bool {
        matches!(self, Self::Host | Self::Pinned)
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host memory"),
            Self::Pinned => f.write_str("pinned host memory"),
            Self::Gpu(id) => write!(f, "memory of GPU {id}"),
            Self::Unknown(other) => write!(f, "memory of unknown type {other}"),
        }
    }
}

/// A piece of memory of the server's that may be read while `'a` lasts.
#[derive(Clone, Copy)]
pub struct Buffer<'a> {
    base: *const u8,
    byte_size: usize,
    kind: MemoryKind,
    owner: PhantomData<&'a [u8]>,
}

// SAFETY: a read-only view; reading shared memory is allowed from any thread.
unsafe impl Send for Buffer<'_> {}
// SAFETY: as above.
unsafe impl Sync for Buffer<'_> {}

impl<'a> Buffer<'a> {
    /// # Safety
    /// `buffer` describes memory that stays readable and unchanged while `'a` lasts.
    pub(crate) unsafe fn new(buffer: raw::Buffer) -> Self {
        Self {
            base: buffer.base.cast_const().cast(),
            byte_size: buffer.byte_size,
            kind: MemoryKind::from_raw(buffer.memory_type, buffer.memory_type_id),
            owner: PhantomData,
        }
    }

    /// Where it lies.
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Its size in bytes.
    pub fn byte_size(&self) -> usize {
        self.byte_size
    }

    /// Its address, which the CPU may read only where [`MemoryKind::is_host`] says so.
    pub fn as_ptr(&self) -> *const u8 {
        self.base
    }

    /// Its bytes, where the CPU can read them.
    pub fn host(&self) -> Option<&'a [u8]> {
        if self.byte_size == 0 {
            return Some(&[]);
        }
        // SAFETY: host memory, readable and unchanged while 'a lasts (see `new`); bytes need no alignment.
        (self.kind.is_host() && !self.base.is_null())
            .then(|| unsafe { std::slice::from_raw_parts(self.base, self.byte_size) })
    }
}

/// Memory handed to the server as the input of an in-process request: kept, unchanged, until the server says
/// that it is done with it.
///
/// # Safety
/// `as_ptr` points to `byte_size` bytes of memory of the kind `kind`, which stay there, unchanged, until the
/// value is dropped, also when the value moves.
pub unsafe trait StableMemory: Send {
    /// Address of the first byte.
    fn as_ptr(&self) -> *const u8;
    /// Size in bytes.
    fn byte_size(&self) -> usize;
    /// Where it lies.
    fn kind(&self) -> MemoryKind;
}

// SAFETY: a vector's elements are on the heap, whatever happens to the vector's own three words, and nothing
// changes them without `&mut`.
unsafe impl<T: crate::Element + Send> StableMemory for Vec<T> {
    fn as_ptr(&self) -> *const u8 {
        self.as_slice().as_ptr().cast()
    }
    fn byte_size(&self) -> usize {
        size_of_val(self.as_slice())
    }
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }
}

/// Alignment of [`HostMemory`]: a cache line, and the widest vector register.
const ALIGNMENT: usize = 64;

/// Host memory of a size known at run time, aligned to 64 bytes, zeroed. Running out of memory is an error.
pub struct HostMemory {
    base: NonNull<u8>,
    byte_size: usize,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for HostMemory {}
// SAFETY: shared access only reads.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Zeroed memory of `byte_size` bytes.
    pub fn zeroed(byte_size: usize) -> Result<Self> {
        if byte_size == 0 {
            return Ok(Self { base: NonNull::dangling(), byte_size });
        }
        let layout = Self::layout(byte_size)?;
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or_else(|| {
            Error::unavailable(format!("out of memory: {byte_size} bytes of host memory wanted"))
        })?;
        Ok(Self { base, byte_size })
    }

    fn layout(byte_size: usize) -> Result<Layout> {
        Layout::from_size_align(byte_size, ALIGNMENT).map_err(|_| {
            Error::invalid_arg(format!("{byte_size} bytes are more than an address space holds"))
        })
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `byte_size` initialised bytes that are ours.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.byte_size) }
    }

    /// Its bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.byte_size) }
    }

    /// Gives the memory to the server as an address, to come back through [`HostMemory::from_raw`].
    pub(crate) fn into_raw(self) -> *mut u8 {
        let base = self.base.as_ptr();
        std::mem::forget(self);
        base
    }

    /// # Safety
    /// Both come from one [`HostMemory`] that was turned into an address and not taken back since.
    pub(crate) unsafe fn from_raw(base: NonNull<u8>, byte_size: usize) -> Self {
        Self { base, byte_size }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let (true, Ok(layout)) = (self.byte_size > 0, Self::layout(self.byte_size)) {
            // SAFETY: allocated with this layout, and owned.
            unsafe { std::alloc::dealloc(self.base.as_ptr(), layout) };
        }
    }
}

// SAFETY: the bytes are on the heap and do not move with the value; nothing changes them without `&mut`.
unsafe impl StableMemory for HostMemory {
    fn as_ptr(&self) -> *const u8 {
        self.base.as_ptr()
    }
    fn byte_size(&self) -> usize {
        self.byte_size
    }
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_memory_is_aligned_zeroed_and_survives_the_trip_as_an_address() {
        let mut memory = HostMemory::zeroed(1000).unwrap();
        assert_eq!(memory.as_ptr() as usize % ALIGNMENT, 0);
        assert!(memory.as_slice().iter().all(|byte| *byte == 0));
        memory.as_mut_slice()[999] = 7;
        let base = NonNull::new(memory.into_raw()).unwrap();
        // SAFETY: address and size of the memory given up above.
        let memory = unsafe { HostMemory::from_raw(base, 1000) };
        assert_eq!(memory.as_slice()[999], 7);
        assert!(HostMemory::zeroed(0).unwrap().as_slice().is_empty());
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(HostMemory::zeroed(usize::MAX).is_err());
        assert!(HostMemory::zeroed(1 << 60).is_err());
    }

    #[test]
    fn unknown_memory_is_kept_apart() {
        let kind = MemoryKind::from_raw(9, 0);
        assert_eq!(kind, MemoryKind::Unknown(9));
        assert!(!kind.is_host());
        assert_eq!(MemoryKind::from_raw(2, 3), MemoryKind::Gpu(3));
        assert_eq!(MemoryKind::Gpu(3).to_raw(), (2, 3));
    }
}
