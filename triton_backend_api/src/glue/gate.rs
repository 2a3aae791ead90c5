//! How many requests of an instance are in flight.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Lets at most `limit` requests through at a time.
pub(crate) struct Gate {
    limit: usize,
    in_flight: Mutex<usize>,
    changed: Condvar,
}

/// The place of one request; dropping it frees the place.
pub(crate) struct Slot(Arc<Gate>);

impl Gate {
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(1), in_flight: Mutex::new(0), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a free place and takes it.
    pub fn enter(self: &Arc<Self>) -> Slot {
        let wait = self.changed.wait_while(self.lock(), |in_flight| *in_flight >= self.limit);
        *wait.unwrap_or_else(PoisonError::into_inner) += 1;
        Slot(self.clone())
    }

    /// Waits until nothing is in flight.
    pub fn wait_until_empty(&self) {
        let wait = self.changed.wait_while(self.lock(), |in_flight| *in_flight > 0);
        drop(wait.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn never_more_than_the_limit_and_empty_at_the_end() {
        let (gate, inside, most) = (Gate::new(2), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let slot = gate.enter();
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(slot);
                    }
                });
            }
        });
        gate.wait_until_empty();
        assert!((1..=2).contains(&most.into_inner()));
    }
}
