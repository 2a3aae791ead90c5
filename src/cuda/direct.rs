//! A session's memory for programs that have no server: the host's slices to the GPU and back.

use std::iter;

use triton_backend_api::{MemoryKind, Result};

use super::queue::DeviceSpan;
use super::session::Session;
use super::transfer::Place;

impl Session<'_> {
    /// Copies these bytes to the beginning of `to`, and waits until that is done.
    pub fn send(&self, bytes: &[u8], to: DeviceSpan<'_>, step: &'static str) -> Result<()> {
        // SAFETY: host memory that is borrowed until the copy is waited for.
        let from = unsafe { Place::new(bytes.as_ptr() as u64, bytes.len(), MemoryKind::Host) };
        let pieces = self.upload(iter::once(from), to.part(0, bytes.len())?, step, |_| Ok(()))?;
        self.wait(step)?;
        drop(pieces);
        Ok(())
    }

    /// The bytes there, once all that was queued before is done.
    pub fn receive(&self, from: DeviceSpan<'_>, step: &'static str) -> Result<Vec<u8>> {
        let mut bytes = vec![0; from.bytes()];
        // SAFETY: host memory of ours; the copy is done when this returns.
        let to = unsafe { Place::new(bytes.as_mut_ptr() as u64, bytes.len(), MemoryKind::Host) };
        self.download(from, to, step)?;
        Ok(bytes)
    }
}
