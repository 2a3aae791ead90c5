//! A queue of host-compiled kernels. Shared with examples/steps.

use host_kernels::Order;
use triton_backend_api::{Error, Result};
use triton_spleenseg::cuda::queue::{DeviceSpan, Launch, Queue};

/// Runs kernels at once, in this shape and order.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    pub block: u32,
    pub multiprocessors: u32,
    pub order: Order,
}

impl Default for Host {
    fn default() -> Self {
        Self { block: 64, multiprocessors: 1, order: Order::default() }
    }
}

impl Queue for Host {
    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        let name = launch.kernel.name();
        let kernel = host_kernels::find(name).map_err(Error::internal)?;
        let kernel = kernel.ok_or_else(|| Error::internal(format!("there is no kernel {name}")))?;
        // SAFETY: the launch has the address and size of a structure without padding that matters.
        let arguments =
            unsafe { std::slice::from_raw_parts(launch.arguments.cast::<u8>(), launch.argument_bytes) };
        let (grid, block) = ([launch.grid, 1, 1], [launch.block, 1, 1]);
        assert!(launch.grid > 0 && launch.shared_bytes <= 48 << 10, "{launch:?}");
        // SAFETY: the caller's promise.
        unsafe { kernel.run(grid, block, launch.shared_bytes, arguments, self.order) }
            .map_err(Error::internal)
    }

    fn fill(&self, span: DeviceSpan<'_>, byte: u8) -> Result<()> {
        // SAFETY: a span is memory that is lent to this queue.
        unsafe { std::ptr::write_bytes(span.address() as *mut u8, byte, span.bytes()) };
        Ok(())
    }

    fn copy(&self, from: DeviceSpan<'_>, to: DeviceSpan<'_>) -> Result<()> {
        assert!(from.bytes() <= to.bytes());
        // SAFETY: spans are memory that is lent to this queue, and they are different buffers.
        unsafe { std::ptr::copy(from.address() as *const u8, to.address() as *mut u8, from.bytes()) };
        Ok(())
    }

    fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    fn block(&self) -> u32 {
        self.block
    }
}

/// Memory of exactly this size, so that a sanitizer sees what lies behind it; undefined until it is written.
pub struct Buffer(Box<[u8]>);

impl Buffer {
    pub fn new(bytes: usize) -> Self {
        Self(vec![0x5A; bytes].into_boxed_slice())
    }

    pub fn of(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    pub fn span(&self) -> DeviceSpan<'_> {
        // SAFETY: the memory lives as long as the span, and the host's queue is done when it returns.
        unsafe { DeviceSpan::new(self.0.as_ptr() as u64, self.0.len()) }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}
