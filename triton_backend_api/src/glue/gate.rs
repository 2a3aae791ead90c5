//! How many requests of an instance are in flight.

use std::sync::{Arc, PoisonError};

use crate::sync::{Condvar, Mutex, MutexGuard};

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
