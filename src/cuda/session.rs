//! One request's use of the instance's GPU.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

use triton_backend_api::{Result, log};

use super::bridge::Answers;
use super::context::{Context, Current};
use super::driver::{CUstream, cuda};
use super::error;
use super::gpu::Gpu;
use super::memory::{DeviceMemory, PinnedMemory};
use super::queue::{DeviceSpan, Launch, Queue};
use super::stream::Event;
use crate::cpu::Threads;

/// A step, its begin and its end.
type Timed = (&'static str, Event, Event);

/// The instance's GPU, while one thread works on one request: its context is the thread's current one, and what was
/// queued is done when this ends.
pub struct Session<'d> {
    gpu: &'d Gpu,
    /// Whether there may be work in the stream that nothing has waited for.
    unsettled: Cell<bool>,
    /// Begin and end of the steps, where somebody reads them.
    times: Option<RefCell<Vec<Timed>>>,
    _current: Current<'d>,
}

impl<'d> Session<'d> {
    /// # Errors
    /// UNAVAILABLE where the GPU is broken.
    pub(super) fn new(gpu: &'d Gpu) -> Result<Self> {
        gpu.ready()?;
        let current = gpu.check(gpu.context().enter())?;
        let times = log::enabled(log::Level::Verbose).then(RefCell::default);
        Ok(Self { gpu, unsettled: Cell::new(false), times, _current: current })
    }

    /// An outcome of the driver's, as the request's. An error that the context does not recover from is the instance's.
    pub(super) fn check<T>(&self, outcome: error::Result<T>) -> Result<T> {
        self.gpu.check(outcome)
    }

    /// The outcome of a call that queues work.
    pub(super) fn queued(&self, outcome: error::Result<()>) -> Result<()> {
        self.unsettled.set(true);
        self.check(outcome)
    }

    pub(super) fn stream(&self) -> CUstream {
        self.gpu.stream().raw()
    }

    pub(super) fn context(&self) -> &'d Context {
        self.gpu.context()
    }

    pub(super) fn threads(&self) -> &'d Threads {
        self.gpu.threads()
    }

    /// Where the network's answers go.
    pub(super) fn answers(&self) -> &'d Arc<Answers> {
        self.gpu.answers()
    }

    /// The GPU's number.
    pub fn gpu_id(&self) -> i64 {
        self.gpu.id()
    }

    /// The context of another GPU.
    pub(super) fn peer(&self, id: i64) -> Result<Arc<Context>> {
        self.check(self.gpu.peer(id))
    }

    /// Memory of the GPU, of undefined contents.
    pub fn memory(&self, byte_size: usize, step: &'static str) -> Result<DeviceMemory> {
        self.check(self.gpu.memory().take(byte_size, step))
    }

    /// Pinned memory of the host, of undefined contents.
    pub(super) fn pinned(&self, byte_size: usize, step: &'static str) -> Result<PinnedMemory> {
        self.check(self.gpu.pinned().take(byte_size, step))
    }

    /// An event that comes when all that is queued now is done.
    pub(super) fn mark(&self, step: &'static str) -> Result<Event> {
        self.check(self.gpu.stream().mark(step))
    }

    /// Waits until all that this session has queued is done.
    pub(super) fn wait(&self, step: &'static str) -> Result<()> {
        if self.unsettled.get() {
            self.check(self.gpu.stream().wait(step))?;
            self.settled();
        }
        Ok(())
    }

    /// All that this session queued has been waited for.
    pub(super) fn settled(&self) {
        self.unsettled.set(false);
    }

    /// Waits until the stream is empty, whatever fails.
    pub(super) fn drain(&self) {
        self.gpu.stream().drain();
        self.settled();
    }

    /// Waits for what was queued and not waited for yet.
    pub(super) fn finish(&self) {
        if self.unsettled.get() {
            self.drain();
        }
    }

    /// Milliseconds of the GPU between the begin of what `work` queues and its end, once that is done.
    pub fn time(&self, step: &'static str, work: impl FnOnce() -> Result<()>) -> Result<f32> {
        let time = || self.check(self.gpu.stream().time(step));
        let start = time()?;
        work()?;
        let end = time()?;
        self.wait(step)?;
        self.check(end.since(&start, step))
    }

    /// Whether somebody reads how long the steps take.
    pub(super) fn is_timed(&self) -> bool {
        self.times.is_some()
    }

    /// A few bytes of the GPU's memory, once all that is queued now is done.
    pub(super) fn fetch<const SIZE: usize>(
        &self,
        from: DeviceSpan<'_>,
        step: &'static str,
    ) -> Result<[u8; SIZE]> {
        let from = from.part(0, SIZE)?;
        let mut pinned = self.pinned(SIZE, step)?;
        // SAFETY: both ends are live, of that size, until this waits.
        let copied = unsafe {
            cuda!(step, cuMemcpyDtoHAsync_v2(pinned.base() as *mut _, from.address(), SIZE, self.stream()))
        };
        // Where waiting fails the memory must not be given back before the copy is done.
        self.queued(copied).and_then(|()| self.wait(step)).inspect_err(|_| self.drain())?;
        let mut bytes = [0; SIZE];
        // SAFETY: the copy is done.
        bytes.copy_from_slice(unsafe { pinned.bytes_mut() });
        Ok(bytes)
    }

    /// Queues the work of a step, between two events where somebody reads them.
    pub(super) fn step<R>(&self, step: &'static str, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let Some(times) = &self.times else { return work() };
        let start = self.check(self.gpu.stream().time(step))?;
        let result = work()?;
        let end = self.check(self.gpu.stream().time(step))?;
        self.unsettled.set(true);
        times.borrow_mut().push((step, start, end));
        Ok(result)
    }
}

/// `foreground=0.21 resize=0.10 .. ms`: how long each step took on the GPU, in the order they ran.
impl fmt::Display for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(times) = &self.times {
            for (step, start, end) in times.borrow().iter() {
                match end.since(start, step) {
                    Ok(milliseconds) => write!(f, "{step}={milliseconds:.3} ")?,
                    Err(_) => write!(f, "{step}=? ")?,
                }
            }
        }
        f.write_str("ms")
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Queue for Session<'_> {
    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        // The sizes of all parameters are passed along, so that the driver can compare them with the kernel's own.
        let mut byte_size = launch.argument_bytes;
        let mut parameters = [
            std::ptr::without_provenance_mut(1), // CU_LAUNCH_PARAM_BUFFER_POINTER
            launch.arguments.cast_mut(),
            std::ptr::without_provenance_mut(2), // CU_LAUNCH_PARAM_BUFFER_SIZE
            (&raw mut byte_size).cast(),
            std::ptr::null_mut(), // CU_LAUNCH_PARAM_END
        ];
        let function = self.gpu.kernels().function(launch.kernel);
        // SAFETY: the caller's promise about arguments and memory; the driver copies the arguments before this returns.
        let launched = unsafe {
            cuda!(
                launch.kernel.name(),
                cuLaunchKernel(
                    function,
                    launch.grid,
                    1,
                    1,
                    launch.block,
                    1,
                    1,
                    launch.shared_bytes,
                    self.stream(),
                    std::ptr::null_mut(),
                    parameters.as_mut_ptr()
                )
            )
        };
        self.queued(launched)
    }

    fn fill(&self, span: DeviceSpan<'_>, byte: u8) -> Result<()> {
        // SAFETY: device memory that is lent to this queue.
        let filled =
            unsafe { cuda!("fill", cuMemsetD8Async(span.address(), byte, span.bytes(), self.stream())) };
        self.queued(filled)
    }

    fn copy(&self, from: DeviceSpan<'_>, to: DeviceSpan<'_>) -> Result<()> {
        let to = to.part(0, from.bytes())?;
        // SAFETY: device memory that is lent to this queue, of that size.
        let copied = unsafe {
            cuda!("copy", cuMemcpyDtoDAsync_v2(to.address(), from.address(), from.bytes(), self.stream()))
        };
        self.queued(copied)
    }

    fn multiprocessors(&self) -> u32 {
        self.gpu.multiprocessors()
    }
}
