//! Memory at any address and of any declared kind.

use triton_backend_api::sys::*;

/// Blocks start this far apart from a cache line where nothing else is asked for.
const LINE: usize = 64;

/// A piece of memory that says it is of some kind, and starts where a test wants it.
///
/// It is always host memory: one that is declared to be a GPU's is found untouched if the backend kept off it.
pub(crate) struct Block {
    storage: Vec<u8>,
    start: usize,
    byte_size: usize,
    pub memory_type: TRITONSERVER_MemoryType,
    pub memory_type_id: i64,
}

impl Block {
    /// `misalign` is where it starts, counted from a multiple of 64.
    pub fn new(byte_size: usize, misalign: usize, kind: (TRITONSERVER_MemoryType, i64)) -> Self {
        // A line to align in, and one on each side for whoever writes past the ends.
        let mut storage = vec![0xA5; byte_size + misalign + 3 * LINE];
        let start = storage.as_mut_ptr().align_offset(LINE).min(LINE) + LINE + misalign;
        Self { storage, start, byte_size, memory_type: kind.0, memory_type_id: kind.1 }
    }

    pub fn holding(bytes: &[u8], misalign: usize, kind: (TRITONSERVER_MemoryType, i64)) -> Self {
        let mut block = Self::new(bytes.len(), misalign, kind);
        let start = block.start;
        block.storage[start..start + bytes.len()].copy_from_slice(bytes);
        block
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.storage[self.start..].as_mut_ptr()
    }

    pub fn byte_size(&self) -> usize {
        self.byte_size
    }

    pub fn bytes(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.byte_size]
    }

    /// Whether the bytes around it are as they were: nobody wrote past its ends.
    pub fn is_intact(&self) -> bool {
        let end = self.start + self.byte_size;
        self.storage[..self.start].iter().chain(&self.storage[end..]).all(|byte| *byte == 0xA5)
    }
}
