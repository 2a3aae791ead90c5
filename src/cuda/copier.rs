//! Copies between the host and memory of GPUs, for instances on the CPU: clients may lay their tensors there. Nothing of
//! the driver is called before such a tensor comes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use triton_backend_api::{Buffer, Error, HostMemory, HostPool, Input, MemoryKind, Output, Result};

use super::context::Context;
use super::driver::{self, cuda};
use super::error::{self, CudaError};
use super::stream::Stream;

/// The GPUs that tensors lay on so far, and host memory for outputs on their way there.
pub struct Copier {
    gpus: Mutex<HashMap<i64, Arc<Gpu>>>,
    outputs: HostPool,
}

/// A GPU whose memory is copied from and to.
struct Gpu {
    stream: Stream,
    context: Arc<Context>,
}

impl Copier {
    /// Keeps the host memory of that many outputs for the next ones.
    pub fn new(outputs: usize) -> Self {
        Self { gpus: Mutex::default(), outputs: HostPool::new(outputs) }
    }

    /// Gathers an input, wherever its buffers lie, into memory of its size.
    pub fn gather(&self, input: &Input<'_>, mut to: &mut [u8]) -> Result<()> {
        // Together they are as long as the input.
        for buffer in input.buffers()? {
            let (part, rest) = to.split_at_mut(buffer.byte_size());
            match (buffer.host(), buffer.kind()) {
                (Some(bytes), _) => part.copy_from_slice(bytes),
                (None, MemoryKind::Gpu(id)) => {
                    self.copy(id, |gpu| gpu.read(&buffer, part)).map_err(|e| {
                        let (name, kind) = (input.name(), buffer.kind());
                        e.context(format!("input '{name}' lies in {kind} and cannot be copied to the host"))
                    })?;
                }
                (None, other) => {
                    return Err(Error::unsupported(format!(
                        "input '{}' lies in {other}; accepted are host, pinned and GPU memory",
                        input.name()
                    )));
                }
            }
            to = rest;
        }
        Ok(())
    }

    /// Host memory of an output's size, of undefined contents.
    pub fn take(&self, byte_size: usize) -> Result<HostMemory> {
        self.outputs.take(byte_size).map_err(|e| e.context("an output on its way to a GPU"))
    }

    /// Copies all bytes of an output, which lies on the GPU with this number.
    pub fn write(&self, from: &[u8], output: &mut Output<'_>, id: i64) -> Result<()> {
        self.copy(id, |gpu| gpu.write(from, output))
            .map_err(|e| e.context(format!("it lies in {} and cannot be copied there", output.kind())))
    }

    fn copy(&self, id: i64, copy: impl FnOnce(&Gpu) -> error::Result<()>) -> Result<()> {
        let copied = self.gpu(id).and_then(|gpu| {
            let _current = gpu.context.enter()?;
            // What fails must not leave a copy under way: the memory is its owner's again.
            copy(&gpu).inspect_err(|_| gpu.stream.drain())
        });
        if copied.as_ref().is_err_and(CudaError::is_sticky) {
            // Its context helps nobody any more, and only when all have let go of it there can be another.
            self.gpus().remove(&id);
        }
        copied.map_err(CudaError::into_error)
    }

    fn gpu(&self, id: i64) -> error::Result<Arc<Gpu>> {
        let mut gpus = self.gpus();
        if let Some(known) = gpus.get(&id) {
            return Ok(known.clone());
        }
        driver::start()?;
        let context = Arc::new(Context::retain(i32::try_from(id).unwrap_or(-1))?);
        let gpu = Arc::new(Gpu { stream: Stream::new(context.clone())?, context });
        gpus.insert(id, gpu.clone());
        Ok(gpu)
    }

    fn gpus(&self) -> std::sync::MutexGuard<'_, HashMap<i64, Arc<Gpu>>> {
        self.gpus.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gpu {
    /// Copies a buffer on this GPU, whose context is current, to memory of its size.
    fn read(&self, from: &Buffer<'_>, to: &mut [u8]) -> error::Result<()> {
        const STEP: &str = "copying from the GPU";
        let (base, from) = (to.as_mut_ptr().cast(), from.as_ptr() as u64);
        // SAFETY: both ends are live, of that size, until the copy is done: this waits, and `Copier::copy` where it fails.
        unsafe { cuda!(STEP, cuMemcpyDtoHAsync_v2(base, from, to.len(), self.stream.raw())) }?;
        self.stream.wait(STEP)
    }

    /// Copies memory of an output's size to that output on this GPU, whose context is current.
    fn write(&self, from: &[u8], to: &mut Output<'_>) -> error::Result<()> {
        const STEP: &str = "copying to the GPU";
        let (base, to) = (from.as_ptr().cast(), to.as_mut_ptr() as u64);
        // SAFETY: as above.
        unsafe { cuda!(STEP, cuMemcpyHtoDAsync_v2(to, base, from.len(), self.stream.raw())) }?;
        self.stream.wait(STEP)
    }
}
