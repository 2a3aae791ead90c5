//! What runs kernels: the same tests run over every machine.

use std::fmt::Debug;

use triton_backend_api::Result;
use triton_spleenseg::cuda::queue::{DeviceSpan, Queue};

/// A queue, and memory that its kernels use.
pub trait Machine: Queue + Debug {
    /// A piece of that memory, of exactly the size that was asked for.
    type Buffer<'m>
    where
        Self: 'm;

    /// Memory that holds these bytes.
    fn holding(&self, bytes: &[u8]) -> Result<Self::Buffer<'_>>;

    /// Memory that holds what nobody may rely on.
    fn room(&self, byte_size: usize) -> Result<Self::Buffer<'_>>;

    /// Lends it to work in the queue.
    fn span<'b>(buffer: &'b Self::Buffer<'_>) -> DeviceSpan<'b>;

    /// Its bytes, once all that was queued before is done.
    fn read(&self, buffer: &Self::Buffer<'_>) -> Result<Vec<u8>>;
}
