//! Memory of the GPU and pinned memory of the host, kept between requests.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE;
use triton_backend_api::{MemoryKind, StableMemory};

use super::driver::{CUdeviceptr, cuda};
use super::error::{CudaError, OUT_OF_MEMORY, Result};
use super::queue::DeviceSpan;
use super::stream::Stream;

/// The least that is allocated, so that the counts and boxes of all steps fit one block.
const SMALLEST: usize = 4096;

/// A block serves volumes of other sizes too where no more than this many times what they want is lent.
const MOST_LENT: usize = 4;

/// Up to the next quarter of a power of two, for the same reason. At most a fourth more.
fn rounded(byte_size: usize) -> usize {
    let byte_size = byte_size.max(SMALLEST);
    byte_size.checked_next_multiple_of(1 << (byte_size.ilog2() - 2)).unwrap_or(byte_size)
}

/// The pools of a kind, those of all instances and models.
type Pools<K> = Mutex<Vec<Weak<Pool<K>>>>;

/// A kind of memory that the driver gives. The context is current when its functions are called.
pub trait Kind: Send + Sync + Sized + 'static {
    /// All its pools, so that one which finds no memory left can have what others keep.
    fn pools() -> &'static Pools<Self>;
    /// Memory of that many bytes, at least one; `step` is what it is wanted for.
    fn allocate(byte_size: usize, step: &'static str) -> Result<u64>;
    /// Gives it back.
    fn free(base: u64) -> Result<()>;
}

/// Memory of the GPU.
pub struct OnDevice;
/// Page-locked memory of the host, for copies that run while the host goes on.
pub struct OnHost;

impl Kind for OnDevice {
    fn pools() -> &'static Pools<Self> {
        static POOLS: Pools<OnDevice> = Mutex::new(Vec::new());
        &POOLS
    }

    fn allocate(byte_size: usize, step: &'static str) -> Result<CUdeviceptr> {
        let mut base = 0;
        // SAFETY: the place is live.
        unsafe { cuda!(step, cuMemAlloc_v2(&mut base, byte_size)) }.map_err(|error| {
            let (mut free, mut total) = (0, 0);
            // SAFETY: the places are live.
            let known = unsafe { cuda!(step, cuMemGetInfo_v2(&mut free, &mut total)) };
            out_of_memory(error, byte_size, known.is_ok().then_some(free))
        })?;
        Ok(base)
    }

    fn free(base: CUdeviceptr) -> Result<()> {
        // SAFETY: allocated above, freed once, and no work in its stream uses it any more.
        unsafe { cuda!("giving memory back", cuMemFree_v2(base)) }
    }
}

impl Kind for OnHost {
    fn pools() -> &'static Pools<Self> {
        static POOLS: Pools<OnHost> = Mutex::new(Vec::new());
        &POOLS
    }

    fn allocate(byte_size: usize, step: &'static str) -> Result<u64> {
        let mut base = std::ptr::null_mut();
        // SAFETY: the place is live.
        unsafe { cuda!(step, cuMemHostAlloc(&mut base, byte_size, CU_MEMHOSTALLOC_PORTABLE)) }
            .map_err(|error| out_of_memory(error, byte_size, None))?;
        Ok(base as u64)
    }

    fn free(base: u64) -> Result<()> {
        // SAFETY: as above.
        unsafe { cuda!("giving pinned memory back", cuMemFreeHost(base as *mut _)) }
    }
}

fn out_of_memory(error: CudaError, wanted: usize, free: Option<usize>) -> CudaError {
    match error {
        CudaError::Driver { step, call, code: OUT_OF_MEMORY, .. } => {
            CudaError::OutOfMemory { step, call, wanted, free }
        }
        other => other,
    }
}

/// An allocation, for work in this stream.
struct Block<K: Kind> {
    base: u64,
    byte_size: usize,
    stream: Arc<Stream>,
    kind: PhantomData<K>,
}

impl<K: Kind> Drop for Block<K> {
    fn drop(&mut self) {
        if let Ok(_current) = self.stream.context().enter() {
            // The driver may wait for the work that uses the memory, but does not promise to.
            self.stream.drain();
            // What cannot be given back is lost: the context is broken then.
            let _ = K::free(self.base);
        }
    }
}

/// Memory of one kind, kept between requests so that a warm instance allocates nothing.
///
/// It holds at most as many free blocks as it was made for, and in all at most twice the bytes that were ever lent at a time, so
/// that volumes of all sizes do not fill the GPU. It lets go of the block that was returned first. A block that
/// is returned may still be in use by work in the stream: whoever takes it next uses it in the same stream, later.
pub struct Pool<K: Kind> {
    stream: Arc<Stream>,
    kept: Mutex<Kept<K>>,
    limit: usize,
}

/// What a pool has, and what it has lent.
struct Kept<K: Kind> {
    /// In the order they were returned.
    free: Vec<Block<K>>,
    /// Bytes that are lent now, and the most there ever were.
    lent: usize,
    most: usize,
}

impl<K: Kind> Kept<K> {
    fn lend(&mut self, byte_size: usize) {
        self.lent += byte_size;
        self.most = self.most.max(self.lent);
    }

    /// Takes out what is too much beside a new block of this size.
    fn surplus(&mut self, byte_size: usize) -> Vec<Block<K>> {
        let lent = self.lent.saturating_add(byte_size);
        let most = self.most.max(lent).saturating_mul(2);
        let mut all = self.free.iter().fold(lent, |all, block| all.saturating_add(block.byte_size));
        let mut count = 0;
        while all > most && count < self.free.len() {
            all -= self.free[count].byte_size;
            count += 1;
        }
        self.free.drain(..count).collect()
    }
}

impl<K: Kind> Pool<K> {
    /// A pool for work in this stream that keeps at most `limit` free blocks.
    pub fn new(stream: Arc<Stream>, limit: usize) -> Arc<Self> {
        let kept = Mutex::new(Kept { free: Vec::new(), lent: 0, most: 0 });
        let pool = Arc::new(Self { stream, kept, limit });
        let mut pools = locked(K::pools());
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&pool));
        pool
    }

    /// The number of the GPU that it belongs to.
    pub fn gpu_id(&self) -> i64 {
        self.stream.context().id().into()
    }

    /// Memory of undefined contents, wanted for `step`. Dropping it returns it.
    ///
    /// Where there is no memory left, what this pool and others of its GPU keep is given back first.
    pub fn take(self: &Arc<Self>, byte_size: usize, step: &'static str) -> Result<Memory<K>> {
        let block = match self.best_fit(byte_size) {
            Some(block) => block,
            None => self.allocate(byte_size, step)?,
        };
        Ok(Memory { block: Some(block), byte_size, home: self.clone() })
    }

    fn allocate(&self, byte_size: usize, step: &'static str) -> Result<Block<K>> {
        let _current = self.stream.context().enter()?;
        let surplus = self.kept().surplus(rounded(byte_size));
        drop(surplus); // giving memory back takes long: not under the lock
        let allocated = |byte_size| Ok((K::allocate(byte_size, step)?, byte_size));
        let (base, byte_size) = match allocated(rounded(byte_size)) {
            Err(CudaError::OutOfMemory { .. }) => {
                self.empty_all();
                allocated(byte_size.max(SMALLEST))?
            }
            other => other?,
        };
        self.kept().lend(byte_size);
        Ok(Block { base, byte_size, stream: self.stream.clone(), kind: PhantomData })
    }

    /// Gives back what the pools of this GPU keep. What their streams do now is waited for.
    fn empty_all(&self) {
        let pools: Vec<_> = locked(K::pools()).iter().filter_map(Weak::upgrade).collect();
        for pool in pools.iter().filter(|pool| pool.gpu_id() == self.gpu_id()) {
            let kept = std::mem::take(&mut pool.kept().free);
            drop(kept);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept<K>> {
        locked(&self.kept)
    }

    /// The smallest block that holds `byte_size`, unless it is far too large.
    fn best_fit(&self, byte_size: usize) -> Option<Block<K>> {
        let mut kept = self.kept();
        let free = &kept.free;
        let wanted = byte_size.max(SMALLEST);
        let fits = |block: &Block<K>| block.byte_size >= wanted && block.byte_size / MOST_LENT <= wanted;
        let found = (0..free.len()).filter(|at| fits(&free[*at])).min_by_key(|at| free[*at].byte_size);
        let found = kept.free.remove(found?);
        kept.lend(found.byte_size);
        Some(found)
    }

    fn keep(&self, block: Block<K>) {
        let mut kept = self.kept();
        kept.lent -= block.byte_size;
        kept.free.push(block);
        let surplus = if kept.free.len() > self.limit { Some(kept.free.remove(0)) } else { None };
        drop(kept);
        drop(surplus); // as above
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory from a pool.
pub struct Memory<K: Kind> {
    /// None only while it is dropped.
    block: Option<Block<K>>,
    byte_size: usize,
    home: Arc<Pool<K>>,
}

/// Memory of the GPU.
pub type DeviceMemory = Memory<OnDevice>;
/// Pinned memory of the host.
pub type PinnedMemory = Memory<OnHost>;

impl<K: Kind> Memory<K> {
    /// Where it begins.
    pub fn base(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.base)
    }

    /// Its size.
    pub fn byte_size(&self) -> usize {
        self.byte_size
    }
}

impl Memory<OnDevice> {
    /// Lends it to work in the stream.
    pub fn span(&self) -> DeviceSpan<'_> {
        // SAFETY: ours alone. Where it is given back before the work on it is done, it serves later work of the same stream.
        unsafe { DeviceSpan::new(self.base(), self.byte_size) }
    }
}

impl Memory<OnHost> {
    /// Its bytes, to be written.
    ///
    /// # Safety
    /// No copy that is under way uses them.
    pub unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: memory of the host's that is ours alone, of that size: pages of the system's, which hold bytes.
        unsafe { std::slice::from_raw_parts_mut(self.base() as *mut u8, self.byte_size) }
    }
}

impl<K: Kind> Drop for Memory<K> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.home.keep(block);
        }
    }
}

// SAFETY: the memory does not move with the value. Whoever hands it over has waited for the work on it.
unsafe impl StableMemory for DeviceMemory {
    fn as_ptr(&self) -> *const u8 {
        self.base() as *const u8
    }
    fn byte_size(&self) -> usize {
        self.byte_size
    }
    fn kind(&self) -> MemoryKind {
        MemoryKind::Gpu(self.home.gpu_id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::context::Context;

    #[test]
    fn what_is_given_back_to_the_driver_has_been_waited_for() {
        fake_driver::load();
        crate::cuda::driver::start().unwrap();
        let context = Arc::new(Context::retain(0).unwrap());
        let pool = Pool::<OnDevice>::new(Arc::new(Stream::new(context.clone()).unwrap()), 1);
        let _current = context.enter().unwrap();
        for byte_size in [5000, 6000, 20_000] {
            let memory = pool.take(byte_size, "test").unwrap();
            // SAFETY: memory of that size; it is given back to its pool before the work on it is done, as steps do it.
            unsafe { cuda!("test", cuMemsetD8Async(memory.base(), 1, byte_size, pool.stream.raw())) }
                .unwrap();
        }
        assert_eq!(fake_driver::violations(), "");
    }
}
