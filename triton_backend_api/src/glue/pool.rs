//! An instance's own threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use crate::error::{Error, Result};
use crate::sync::{Builder, JoinHandle, Mutex, Receiver, Sender, channel, current};

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads that run jobs in the order they came. Dropping it runs what is queued, then joins.
pub(crate) struct Pool {
    /// None once the pool is closing.
    queue: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// `count` threads named after the instance they serve.
    pub fn new(name: &str, count: usize) -> Result<Self> {
        let (queue, jobs) = channel::<Job>();
        let jobs = Arc::new(Mutex::new(jobs));
        let mut pool = Self { queue: Some(queue), threads: Vec::new() };
        for _ in 0..count.max(1) {
            let jobs = jobs.clone();
            let thread = Builder::new()
                .name(name.chars().take(15).collect())
                .spawn(move || work(&jobs))
                .map_err(|e| Error::unavailable(format!("no thread for instance '{name}': {e}")))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Queues a job.
    pub fn spawn(&self, job: impl FnOnce() + Send + 'static) -> Result<()> {
        let queue = self.queue.as_ref().ok_or_else(|| Error::unavailable("the instance is closing"))?;
        queue.send(Box::new(job)).map_err(|_| Error::internal("the instance's threads are gone"))
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // A job answers for its own panics; this keeps the thread for the next one whatever happens.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.queue.take());
        for thread in self.threads.drain(..) {
            // Releasing the last request of an unloading model can bring us here on one of these threads, which
            // cannot wait for itself; it ends by itself, and the library stays mapped (-z nodelete).
            if thread.thread().id() != current().id() {
                let _ = thread.join();
            }
        }
    }
}
