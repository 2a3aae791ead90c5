//! The four times the server's statistics are made of.

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
