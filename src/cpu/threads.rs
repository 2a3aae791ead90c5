//! The model's own threads.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};
use triton_backend_api::{Error, Result};

/// A pool of threads. Dropping the last handle ends and awaits them.
#[derive(Clone)]
pub struct Threads(Arc<Owned>);

struct Owned {
    /// None only while it is dropped.
    pool: Option<ThreadPool>,
    running: Arc<Running>,
}

/// How many threads have not ended.
struct Running {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Threads {
    /// `count` threads; 0 is one for each processor that this process may use.
    pub fn new(count: usize) -> Result<Self> {
        let count = match count {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            given => given,
        };
        let running = Arc::new(Running { count: Mutex::new(count), changed: Condvar::new() });
        let ended = running.clone();
        let pool = ThreadPoolBuilder::new()
            .num_threads(count)
            .thread_name(|at| format!("spleenseg-{at}"))
            .exit_handler(move |_| {
                *ended.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
                ended.changed.notify_all();
            })
            .build()
            .map_err(|e| Error::unavailable(format!("{count} threads (parameter \"threads\"): {e}")))?;
        Ok(Self(Arc::new(Owned { pool: Some(pool), running })))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.pool.as_ref().map_or(1, ThreadPool::current_num_threads)
    }

    /// Runs `work` on the pool; parallel iterators in it use all of its threads.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.0.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        drop(self.pool.take());
        let count = self.running.count.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = self.running.changed.wait_while(count, |count| *count > 0);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;

    #[test]
    fn as_many_threads_as_asked_for_and_none_left() {
        let threads = Threads::new(3).unwrap();
        assert_eq!(threads.count(), 3);
        let running = threads.0.running.clone();
        let sum: usize = threads.run(|| (0..1000usize).into_par_iter().sum());
        assert_eq!(sum, 499_500);
        drop(threads);
        assert_eq!(*running.count.lock().unwrap(), 0);
    }
}
