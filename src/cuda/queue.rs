//! What a step needs of a device: memory with a size, and an order of work. A CUDA stream is one [`Queue`]; the tests'
//! host-compiled kernels are another.

use std::ffi::c_void;
use std::marker::PhantomData;

use triton_backend_api::{Error, Result};

use super::kernels::Kernel;

/// A piece of device memory, lent for as long as `'a` and the work queued on it last.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSpan<'a> {
    address: u64,
    bytes: usize,
    owner: PhantomData<&'a ()>,
}

impl<'a> DeviceSpan<'a> {
    /// # Safety
    /// `bytes` bytes at `address` can be read and written by the device of the queues that this is given to, and by
    /// nothing else until those queues have finished the work on it.
    pub const unsafe fn new(address: u64, bytes: usize) -> Self {
        Self { address, bytes, owner: PhantomData }
    }

    /// Where it begins.
    pub const fn address(self) -> u64 {
        self.address
    }

    /// How long it is.
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// A part of it; INTERNAL when it ends before that part does.
    pub fn part(self, offset: usize, bytes: usize) -> Result<Self> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => {
                Ok(Self { address: self.address + offset as u64, bytes, ..self })
            }
            _ => Err(Error::internal(format!(
                "bytes {offset}..{offset}+{bytes} of a piece of device memory that has {}",
                self.bytes
            ))),
        }
    }

    /// INTERNAL unless it has at least `bytes` bytes and begins at a multiple of `alignment`.
    pub(super) fn check(self, what: &str, bytes: usize, alignment: u64) -> Result<()> {
        if self.bytes < bytes || !self.address.is_multiple_of(alignment) {
            return Err(Error::internal(format!(
                "{what} has {} bytes at {:#x}; {bytes} at a multiple of {alignment} are needed",
                self.bytes, self.address
            )));
        }
        Ok(())
    }
}

/// One start of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Which one.
    pub kernel: Kernel,
    /// Blocks, along x.
    pub grid: u32,
    /// Threads of a block, along x.
    pub block: u32,
    /// Dynamic shared memory of a block, at most 48 KiB.
    pub shared_bytes: u32,
    /// The kernel's only parameter: a structure of `argument_bytes` bytes that is passed by value.
    pub arguments: *const c_void,
    /// The size of that structure.
    pub argument_bytes: usize,
    pub(super) owner: PhantomData<&'a ()>,
}

/// Work in order on one device.
pub trait Queue {
    /// Starts a kernel after all that was queued before. The arguments are read before this returns.
    ///
    /// # Safety
    /// The arguments are those of the kernel, and the memory that they name is large enough.
    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<()>;

    /// Sets every byte.
    fn fill(&self, span: DeviceSpan<'_>, byte: u8) -> Result<()>;

    /// Copies all of `from` to the beginning of `to`, which is at least as long; both lie on this device.
    fn copy(&self, from: DeviceSpan<'_>, to: DeviceSpan<'_>) -> Result<()>;

    /// How many multiprocessors the device has.
    fn multiprocessors(&self) -> u32;

    /// Threads of a block: a multiple of 32, at most 1024.
    fn block(&self) -> u32 {
        256
    }
}
