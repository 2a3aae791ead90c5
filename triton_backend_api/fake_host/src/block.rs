//! Memory at any address and of any declared kind.

use std::sync::{Mutex, PoisonError};

use triton_backend_api::sys::*;

/// Blocks start this far apart from a cache line where nothing else is asked for.
const LINE: usize = 64;

/// The GPUs' memory, where a test has some: see [`FakeHost::use_gpu_memory`](crate::FakeHost::use_gpu_memory).
#[derive(Clone, Copy)]
pub struct GpuMemory {
    /// Memory of a GPU; 0 where there is none left.
    pub allocate: fn(device: i64, byte_size: usize) -> u64,
    /// Gives it back.
    pub free: fn(base: u64),
    /// Reads it, as a client or another model does.
    pub read: fn(base: u64, bytes: &mut [u8]),
    /// Writes it, as a client or another model does.
    pub write: fn(base: u64, bytes: &[u8]),
}

static GPU_MEMORY: Mutex<Option<GpuMemory>> = Mutex::new(None);

pub(crate) fn use_gpu_memory(memory: Option<GpuMemory>) {
    *GPU_MEMORY.lock().unwrap_or_else(PoisonError::into_inner) = memory;
}

fn gpu_memory(memory_type: TRITONSERVER_MemoryType) -> Option<GpuMemory> {
    let memory = *GPU_MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    memory.filter(|_| memory_type == TRITONSERVER_MEMORY_GPU)
}

/// Bytes of the backend's, read as the server's models do.
///
/// # Safety
/// `base` points to that many readable bytes of memory of that type.
pub(crate) unsafe fn read(
    base: *const u8,
    byte_size: usize,
    memory_type: TRITONSERVER_MemoryType,
) -> Vec<u8> {
    let mut bytes = vec![0; byte_size];
    match gpu_memory(memory_type) {
        _ if byte_size == 0 => (),
        Some(gpu) => (gpu.read)(base as u64, &mut bytes),
        // SAFETY: see above.
        None => unsafe { std::ptr::copy_nonoverlapping(base, bytes.as_mut_ptr(), byte_size) },
    }
    bytes
}

/// Writes to memory of the backend's as the server's models do.
///
/// # Safety
/// `base` points to as many writable bytes of memory of that type.
pub(crate) unsafe fn write(base: *mut u8, bytes: &[u8], memory_type: TRITONSERVER_MemoryType) {
    match gpu_memory(memory_type) {
        Some(gpu) => (gpu.write)(base as u64, bytes),
        None if memory_type == TRITONSERVER_MEMORY_GPU => (), // it is left alone
        // SAFETY: see above.
        None => unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base, bytes.len()) },
    }
}

/// A piece of memory that says it is of some kind, and starts where a test wants it.
///
/// Without a test's GPU memory it is always host memory: one that is declared to be a GPU's is found untouched if the
/// backend kept off it.
pub(crate) struct Block {
    storage: Vec<u8>,
    start: usize,
    byte_size: usize,
    /// The memory of a GPU that stands in for `storage`.
    gpu: Option<(GpuMemory, u64)>,
    pub memory_type: TRITONSERVER_MemoryType,
    pub memory_type_id: i64,
}

impl Block {
    /// `misalign` is where it starts, counted from a multiple of 64.
    pub fn new(byte_size: usize, misalign: usize, kind: (TRITONSERVER_MemoryType, i64)) -> Self {
        if let Some(gpu) = gpu_memory(kind.0) {
            let base = (gpu.allocate)(kind.1, byte_size + misalign);
            let (storage, start) = (Vec::new(), misalign);
            let (memory_type, memory_type_id) = kind;
            return Self { storage, start, byte_size, gpu: Some((gpu, base)), memory_type, memory_type_id };
        }
        // A line to align in, and one on each side for whoever writes past the ends.
        let mut storage = vec![0xA5; byte_size + misalign + 3 * LINE];
        let start = storage.as_mut_ptr().align_offset(LINE).min(LINE) + LINE + misalign;
        Self { storage, start, byte_size, gpu: None, memory_type: kind.0, memory_type_id: kind.1 }
    }

    pub fn holding(bytes: &[u8], misalign: usize, kind: (TRITONSERVER_MemoryType, i64)) -> Self {
        let mut block = Self::new(bytes.len(), misalign, kind);
        // SAFETY: the block's own memory, of that size.
        unsafe {
            match block.gpu {
                Some(_) => write(block.as_mut_ptr(), bytes, kind.0),
                None => write(block.as_mut_ptr(), bytes, TRITONSERVER_MEMORY_CPU),
            }
        }
        block
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        match self.gpu {
            Some((_, base)) => (base as usize + self.start) as *mut u8,
            None => self.storage[self.start..].as_mut_ptr(),
        }
    }

    pub fn byte_size(&self) -> usize {
        self.byte_size
    }

    pub fn bytes(&self) -> Vec<u8> {
        match self.gpu {
            // SAFETY: the block's own memory, of that size.
            Some((_, base)) => unsafe {
                read((base as usize + self.start) as *const u8, self.byte_size, self.memory_type)
            },
            None => self.storage[self.start..self.start + self.byte_size].to_vec(),
        }
    }

    /// Whether the host kept off it, as it must where it is a GPU's.
    pub fn is_untouched(&self) -> bool {
        // A test's GPU memory cannot be touched.
        self.gpu.is_some() || self.bytes().iter().all(|byte| *byte == 0xA5)
    }

    /// Whether the bytes around it are as they were: nobody wrote past its ends.
    pub fn is_intact(&self) -> bool {
        if self.gpu.is_some() {
            return true; // the GPU's memory knows for itself
        }
        let end = self.start + self.byte_size;
        self.storage[..self.start].iter().chain(&self.storage[end..]).all(|byte| *byte == 0xA5)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some((gpu, base)) = self.gpu.filter(|(_, base)| *base != 0) {
            (gpu.free)(base);
        }
    }
}
