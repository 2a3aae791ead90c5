//! The instance's stream, and events in it.

use std::sync::Arc;

use cudarc::driver::sys::CUevent_flags_enum::{CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING};
use cudarc::driver::sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING;

use super::context::Context;
use super::driver::{CUevent, CUstream, cuda};
use super::error::Result;

/// A stream that waits for no other stream, the legacy default stream included.
pub struct Stream {
    raw: CUstream,
    context: Arc<Context>,
}

// SAFETY: a stream may be used from any threads at once; the driver locks what it must.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream in this context.
    pub fn new(context: Arc<Context>) -> Result<Self> {
        let _current = context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the place is live, the context current.
        unsafe { cuda!("making the stream", cuStreamCreate(&mut raw, CU_STREAM_NON_BLOCKING as u32)) }?;
        drop(_current);
        Ok(Self { raw, context })
    }

    /// Its context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The driver's handle.
    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Waits until all that is in the stream now is done; what comes meanwhile is not waited for.
    pub fn wait(&self, step: &'static str) -> Result<()> {
        self.mark(step)?.wait(step)
    }

    /// As [`Stream::wait`], on a thread where the context need not be current.
    pub fn wait_in_context(&self, step: &'static str) -> Result<()> {
        let _current = self.context.enter()?;
        self.wait(step)
    }

    /// An event that comes when all that is in the stream now is done.
    pub fn mark(&self, step: &'static str) -> Result<Event> {
        Event::record(self, step, CU_EVENT_DISABLE_TIMING as u32)
    }

    /// As [`Stream::mark`], with the GPU's time of it.
    pub fn time(&self, step: &'static str) -> Result<Event> {
        Event::record(self, step, CU_EVENT_DEFAULT as u32)
    }

    /// Waits until the stream is empty, whatever fails.
    pub fn drain(&self) {
        // SAFETY: a live stream. Where this fails nothing runs any more.
        let _ = unsafe { cuda!("emptying the stream", cuStreamSynchronize(self.raw)) };
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            self.drain();
            // SAFETY: ours, and used no more.
            let _ = unsafe { cuda!("ending the stream", cuStreamDestroy_v2(self.raw)) };
        }
    }
}

/// A point in a stream.
pub struct Event(CUevent);

impl Event {
    fn record(stream: &Stream, step: &'static str, flags: u32) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the place is live, the context current.
        unsafe { cuda!(step, cuEventCreate(&mut raw, flags)) }?;
        let event = Self(raw);
        // SAFETY: event and stream are live, and of the same context.
        unsafe { cuda!(step, cuEventRecord(event.0, stream.raw)) }?;
        Ok(event)
    }

    /// Waits for it.
    pub fn wait(&self, step: &'static str) -> Result<()> {
        // SAFETY: a live event.
        unsafe { cuda!(step, cuEventSynchronize(self.0)) }
    }

    /// Milliseconds from `start` to here; both have come, and are timed.
    pub fn since(&self, start: &Self, step: &'static str) -> Result<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: the place and both events are live.
        unsafe { cuda!(step, cuEventElapsedTime(&mut milliseconds, start.0, self.0)) }?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: ours, destroyed once; the driver keeps what is still to come of it.
        let _ = unsafe { cuda!("ending an event", cuEventDestroy_v2(self.0)) };
    }
}
