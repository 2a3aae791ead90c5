//! Host memory for whole tensors, and a pool that keeps it for the next request.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::data_type::Element;
use crate::error::{Error, Result};
use crate::memory::{MemoryKind, StableMemory};

/// Alignment of all host memory: a cache line, and the widest vector register.
const ALIGNMENT: usize = align_of::<Aligned>();

/// A huge page: blocks at least as large ask the system for such pages, which are faulted in 512 times more rarely.
const HUGE_PAGE: usize = 2 << 20;

/// Host memory of a size known at run time, aligned to 64 bytes. Running out of memory is an error.
pub struct HostMemory {
    /// None only while it is dropped.
    block: Option<Block>,
    byte_size: usize,
    home: Option<HostPool>,
}

impl HostMemory {
    /// Zeroed memory of `byte_size` bytes.
    pub fn zeroed(byte_size: usize) -> Result<Self> {
        Ok(Self { block: Some(Block::zeroed(byte_size)?), byte_size, home: None })
    }

    fn base(&self) -> *mut u8 {
        self.block.as_ref().map_or(Block::NOWHERE, |block| block.base).as_ptr()
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.elements()
    }

    /// Its bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.elements_mut()
    }

    /// Its bytes as elements; a remainder too short for one is left out.
    pub fn elements<T: Element>(&self) -> &[T] {
        // SAFETY: initialised bytes that are ours, aligned for any number; every bit pattern is a value of T.
        unsafe { std::slice::from_raw_parts(self.base().cast(), self.byte_size / size_of::<T>()) }
    }

    /// Its bytes as elements, to be written.
    pub fn elements_mut<T: Element>(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.base().cast(), self.byte_size / size_of::<T>()) }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let (Some(block), Some(home)) = (self.block.take(), self.home.take()) {
            home.keep(block);
        }
    }
}

// SAFETY: the bytes are on the heap and do not move with the value; nothing changes them without `&mut`.
unsafe impl StableMemory for HostMemory {
    fn as_ptr(&self) -> *const u8 {
        self.base()
    }
    fn byte_size(&self) -> usize {
        self.byte_size
    }
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }
}

/// Keeps the host memory of past requests, so that a warm server neither allocates nor faults pages in.
///
/// It holds at most as many free blocks as it was made for, and lets go of the one that was returned first.
/// Cloning it gives another handle to the same pool.
#[derive(Clone)]
pub struct HostPool(Arc<State>);

struct State {
    /// In the order they were returned.
    free: Mutex<Vec<Block>>,
    limit: AtomicUsize,
}

impl HostPool {
    /// A pool that keeps at most `limit` free blocks.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(State { free: Mutex::new(Vec::new()), limit: AtomicUsize::new(limit) }))
    }

    /// Memory of `byte_size` bytes whose contents are those of its last use, or zeros. Dropping it returns it.
    pub fn take(&self, byte_size: usize) -> Result<HostMemory> {
        let block = self.best_fit(byte_size).map_or_else(|| Block::zeroed(byte_size), Ok)?;
        Ok(HostMemory { block: Some(block), byte_size, home: Some(self.clone()) })
    }

    /// Lets the pool keep `more` further free blocks.
    pub fn keep_more(&self, more: usize) {
        self.0.limit.fetch_add(more, Ordering::Relaxed);
    }

    fn free(&self) -> MutexGuard<'_, Vec<Block>> {
        self.0.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The smallest block that holds `byte_size`, unless more than half of it would be wasted.
    fn best_fit(&self, byte_size: usize) -> Option<Block> {
        let mut free = self.free();
        let fits = |block: &Block| block.byte_size >= byte_size && block.byte_size / 2 <= byte_size;
        let found = (0..free.len()).filter(|at| fits(&free[*at])).min_by_key(|at| free[*at].byte_size);
        found.map(|at| free.remove(at))
    }

    fn keep(&self, block: Block) {
        let mut free = self.free();
        free.push(block);
        let surplus =
            if free.len() > self.0.limit.load(Ordering::Relaxed) { Some(free.remove(0)) } else { None };
        drop(free);
        drop(surplus); // returning memory to the system can take long: not under the lock
    }
}

/// An allocation, initialised throughout.
struct Block {
    base: NonNull<u8>,
    byte_size: usize,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for Block {}
// SAFETY: shared access only reads.
unsafe impl Sync for Block {}

/// What is aligned as all host memory is.
#[repr(align(64))]
struct Aligned;

impl Block {
    /// The place of no bytes, aligned like the rest, so that it can be seen as elements of any type.
    const NOWHERE: NonNull<u8> = NonNull::<Aligned>::dangling().cast();

    fn zeroed(byte_size: usize) -> Result<Self> {
        if byte_size == 0 {
            return Ok(Self { base: Self::NOWHERE, byte_size });
        }
        let layout = Self::layout(byte_size)?;
        let is_huge = layout.align() == HUGE_PAGE;
        // SAFETY: the layout's size is not zero.
        let base = unsafe { if is_huge { alloc(layout) } else { alloc_zeroed(layout) } };
        let base = NonNull::new(base)
            .ok_or_else(|| Error::unavailable(format!("out of host memory: {byte_size} bytes wanted")))?;
        if is_huge {
            // Before anything is written there. A system that has no such pages gives others.
            #[cfg(target_os = "linux")]
            // SAFETY: the block begins with a page. Advice changes nothing that pages hold, in the last one's rest neither.
            unsafe {
                libc::madvise(base.as_ptr().cast(), byte_size, libc::MADV_HUGEPAGE)
            };
            // SAFETY: the block has this size.
            unsafe { base.as_ptr().write_bytes(0, byte_size) };
        }
        Ok(Self { base, byte_size })
    }

    fn layout(byte_size: usize) -> Result<Layout> {
        let alignment = if byte_size < HUGE_PAGE { ALIGNMENT } else { HUGE_PAGE };
        Layout::from_size_align(byte_size, alignment).map_err(|_| {
            Error::invalid_arg(format!("{byte_size} bytes are more than an address space holds"))
        })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let (true, Ok(layout)) = (self.byte_size > 0, Self::layout(self.byte_size)) {
            // SAFETY: allocated with this layout, and owned.
            unsafe { dealloc(self.base.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_zeroed() {
        let mut memory = HostMemory::zeroed(1000).unwrap();
        assert_eq!(memory.as_ptr() as usize % ALIGNMENT, 0);
        assert!(memory.as_slice().iter().all(|byte| *byte == 0));
        memory.elements_mut::<f32>()[249] = 1.5;
        assert_eq!(memory.elements::<f32>()[249], 1.5);
        assert_eq!(memory.as_slice()[996..], 1.5f32.to_ne_bytes());
        assert!(HostMemory::zeroed(0).unwrap().elements::<f64>().is_empty());
        for byte_size in [HUGE_PAGE - 1, HUGE_PAGE, 2 * HUGE_PAGE + 4097] {
            let memory = HostMemory::zeroed(byte_size).unwrap();
            let wanted = if byte_size < HUGE_PAGE { ALIGNMENT } else { HUGE_PAGE };
            assert_eq!(memory.as_ptr() as usize % wanted, 0);
            assert!(memory.as_slice().len() == byte_size && memory.as_slice().iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(HostMemory::zeroed(usize::MAX).is_err());
        assert!(HostPool::new(1).take(1 << 60).is_err());
    }

    #[test]
    fn a_returned_block_serves_again_where_it_fits() {
        let pool = HostPool::new(2);
        let mut first = pool.take(1000).unwrap();
        first.as_mut_slice()[0] = 7;
        let address = first.as_ptr();
        drop(first);
        let second = pool.take(600).unwrap();
        assert_eq!((second.as_ptr(), second.as_slice().len(), second.as_slice()[0]), (address, 600, 7));
        assert_ne!(pool.take(600).unwrap().as_ptr(), address, "it is in use");
        drop(second);
        assert_ne!(pool.take(400).unwrap().as_ptr(), address, "more than half would be wasted");
        assert_ne!(pool.take(1001).unwrap().as_ptr(), address, "it is too small");
    }

    #[test]
    fn no_more_is_kept_than_the_limit() {
        let pool = HostPool::new(2);
        let taken: Vec<_> = (1..=4).map(|n| pool.take(n * 1000).unwrap()).collect();
        drop(taken);
        let kept: Vec<_> = pool.free().iter().map(|block| block.byte_size).collect();
        assert_eq!(kept, [3000, 4000]);
    }
}
