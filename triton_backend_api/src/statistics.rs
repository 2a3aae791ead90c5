//! The times that the server's statistics are made of: four of a request, three of a response in a decoupled model.

use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::{raw, sys};

/// Nanoseconds of the clock the server's statistics use, `CLOCK_MONOTONIC`.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is live. The call cannot fail for this clock, and would leave zeros if it did.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// When an execution started, when its inputs were ready, when the computation was done.
///
/// The server reports compute_input = start to inputs ready, compute_infer = inputs ready to computed,
/// compute_output = computed to the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeline {
    pub start: u64,
    compute_start: Option<u64>,
    compute_end: Option<u64>,
}

impl Timeline {
    pub fn start() -> Self {
        Self { start: now_ns(), compute_start: None, compute_end: None }
    }

    pub fn mark_compute_start(&mut self) {
        self.compute_start = Some(now_ns());
    }

    pub fn mark_compute_end(&mut self) {
        self.compute_end = Some(now_ns());
    }

    /// All four times at the end, in order. Without marks everything was computation.
    pub fn finish(&self, end: u64) -> [u64; 4] {
        let compute_start = self.compute_start.unwrap_or(self.start);
        let compute_end = self.compute_end.unwrap_or(end).max(compute_start);
        [self.start, compute_start, compute_end, end.max(compute_end)]
    }
}

/// When work on one response of a decoupled model began, and when its outputs began to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseTimes {
    start: u64,
    output_start: Option<u64>,
}

impl ResponseTimes {
    pub fn start(start: u64) -> Self {
        Self { start, output_start: None }
    }

    /// Something is put into the response; the first time counts.
    pub fn mark_output(&mut self) {
        self.output_start.get_or_insert_with(now_ns);
    }

    /// Reports the response, which ends now and carries `error`, if that is not null. One that nothing was put into is
    /// counted as empty, a cancellation as one. UNSUPPORTED where the server's backend API is older than 1.19.
    ///
    /// # Safety
    /// All are the server's and live; `error` may be null.
    pub unsafe fn report(
        &self,
        instance: NonNull<sys::TRITONBACKEND_ModelInstance>,
        factory: NonNull<sys::TRITONBACKEND_ResponseFactory>,
        error: *mut sys::TRITONSERVER_Error,
    ) -> Result<()> {
        let form = Form::new()?;
        let form = form.0.as_ptr();
        // SAFETY: a live form, and see above. The server follows instance and factory: only a form that has both is
        // reported.
        unsafe {
            raw::response_statistics_set_instance(form, instance.as_ptr())?;
            raw::response_statistics_set_factory(form, factory.as_ptr())?;
            raw::response_statistics_set_start(form, self.start)?;
            if let Some(output_start) = self.output_start {
                raw::response_statistics_set_output_start(form, output_start)?;
            }
            raw::response_statistics_set_end(form, now_ns())?;
            if !error.is_null() {
                raw::response_statistics_set_error(form, error)?;
            }
            raw::report_response_statistics(form)
        }
    }
}

/// What the server wants to have filled in about one response.
struct Form(NonNull<sys::TRITONBACKEND_ModelInstanceResponseStatistics>);

impl Form {
    fn new() -> Result<Self> {
        // SAFETY: needs nothing.
        let form = unsafe { raw::response_statistics_new() }?;
        NonNull::new(form).map(Self).ok_or_else(|| Error::unsupported("this server keeps no statistics"))
    }
}

impl Drop for Form {
    fn drop(&mut self) {
        // SAFETY: ours, deleted once.
        let _ = unsafe { raw::response_statistics_delete(self.0.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_order_with_and_without_marks() {
        let mut timeline = Timeline::start();
        let end = now_ns();
        assert_eq!(timeline.finish(end), [timeline.start, timeline.start, end, end]);
        timeline.mark_compute_start();
        timeline.mark_compute_end();
        let times = timeline.finish(now_ns());
        assert!(times.is_sorted(), "{times:?}");
    }
}
