//! Where tensors lie, and memory that outlives a call.

mod host;
mod server;

use std::fmt;
use std::marker::PhantomData;

use crate::{raw, sys};
pub use host::{HostMemory, HostPool};
pub use server::{MemoryManager, ServerMemory};

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

    /// The GPU whose memory it is, for elements at `base`; the reason where it is none's or they are not aligned.
    pub(crate) fn device_of<T>(self, base: *const u8) -> Result<i64, String> {
        match self {
            Self::Gpu(device) if base.cast::<T>().is_aligned() => Ok(device),
            Self::Gpu(_) => Err(format!("it starts at {base:?}, not at a multiple of {}", align_of::<T>())),
            other => Err(format!("it lies in {other}, not in that of a GPU")),
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

    /// Its elements on a GPU; the reason where they are not there, or not aligned for `T`.
    pub(crate) fn device<T: crate::Element>(&self) -> Result<crate::DeviceSlice<'a, T>, String> {
        let device = self.kind.device_of::<T>(self.base)?;
        // SAFETY: memory of that GPU, readable and unchanged while 'a lasts (see `new`), and aligned.
        Ok(unsafe { crate::DeviceSlice::new(self.base.cast(), self.byte_size / size_of::<T>(), device) })
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

/// Memory of the caller's for the outputs of its in-process requests.
///
/// # Safety
/// What `take` returns may be written by the server, and by the model that answers, until it is dropped. Nothing else uses
/// it meanwhile, work that was queued on a GPU before included.
pub unsafe trait OutputMemory: Send + Sync {
    /// Memory of at least `byte_size` bytes for an output that its model would like to have in `preferred`; `None` where
    /// this has none. Called on a thread of the server's, while it waits.
    fn take(&self, byte_size: usize, preferred: MemoryKind) -> Option<Box<dyn StableMemory>>;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_memory_is_kept_apart() {
        let kind = MemoryKind::from_raw(9, 0);
        assert_eq!(kind, MemoryKind::Unknown(9));
        assert!(!kind.is_host());
        assert_eq!(MemoryKind::from_raw(2, 3), MemoryKind::Gpu(3));
        assert_eq!(MemoryKind::Gpu(3).to_raw(), (2, 3));
    }
}
