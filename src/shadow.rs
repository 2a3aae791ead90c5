//! Shadow mode: one request in so many also goes to another model, and the masks are compared.
//!
//! The client's request neither waits for it nor fails by it. INPUT0 is the client's, and may change once the answer is
//! sent, so what the other model gets is a copy; it is made while the network works, by a thread of its own, which gives
//! up when the network is done first. Everything else comes after the answer, on this module's thread. One request is on its way
//! at a time; those whose turn comes meanwhile are counted as skipped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use triton_backend_api::{DataType, Error, HostMemory, HostPool, Input, Request, Result, Server, log};

use crate::config::ShadowModel;
use crate::interface::{INPUT, OUTPUTS};
use crate::metrics::{Owner, ShadowMetrics};

mod agreement;

use agreement::Agreement;

/// Bytes that are copied between two looks at whether the copy is still wanted.
const PIECE: usize = 1 << 20;
/// The parameter of a request that is a shadow itself: it casts none.
const MARK: &str = "spleenseg_shadow";

/// The other model, and the thread that waits for it.
pub struct Shadow {
    every: u64,
    requests: AtomicU64,
    shared: Arc<Shared>,
    /// None only while it is dropped.
    thread: Option<(SyncSender<Job>, JoinHandle<()>)>,
}

struct Shared {
    metrics: ShadowMetrics,
    pool: HostPool,
    busy: AtomicBool,
    stopped: AtomicBool,
}

/// The turn of a request: it is the one on its way until this is dropped.
pub struct Turn {
    shared: Arc<Shared>,
    copy: Option<Copied>,
    outcome: &'static str,
}

/// INPUT0 as it came.
struct Copied {
    memory: HostMemory,
    data_type: DataType,
    shape: Vec<i64>,
}

/// What is to be compared.
struct Job {
    turn: Turn,
    input: Copied,
    id: String,
    masks: Vec<HostMemory>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.shared.metrics.request(self.outcome);
        self.shared.busy.store(false, Ordering::Release);
    }
}

impl Shadow {
    /// Beside the model of that name.
    pub fn new(server: Server, name: &str, owner: &Owner, config: ShadowModel) -> Result<Self> {
        if config.model == name {
            return Err(Error::invalid_arg(format!(
                "parameter \"shadow_model\" is \"{name}\", this model itself; accepted is another model"
            )));
        }
        let shared = Arc::new(Shared {
            metrics: ShadowMetrics::new(owner),
            pool: HostPool::new(1),
            busy: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        });
        let every = config.every;
        // One place: there is one turn at a time.
        let (sender, jobs) = sync_channel(1);
        let worker = Worker { server, name: name.to_owned(), shadow: config, shared: shared.clone(), jobs };
        let thread = thread::Builder::new().name("spleenseg-shadow".to_owned()).spawn(move || worker.run());
        let thread =
            thread.map_err(|e| Error::unavailable(format!("the thread of the shadow model: {e}")))?;
        Ok(Self { every, requests: AtomicU64::new(0), shared, thread: Some((sender, thread)) })
    }

    /// Whether this request is to be compared.
    pub fn turn(&self, request: &Request) -> Option<Turn> {
        if request.parameter(MARK).is_ok_and(|mark| mark.is_some())
            || !self.requests.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.every)
        {
            return None;
        }
        if self.shared.busy.swap(true, Ordering::Acquire) {
            self.shared.metrics.request("skipped_busy");
            return None;
        }
        Some(Turn { shared: self.shared.clone(), copy: None, outcome: "request_failed" })
    }

    /// Compares these masks, one for each volume, with the other model's; returns at once. The client has its answer.
    pub fn compare(&self, mut turn: Turn, id: String, masks: Vec<HostMemory>) {
        let Some(input) = turn.copy.take() else { return };
        if let Some((jobs, _)) = &self.thread {
            // A job that is not taken is dropped, and with it the turn.
            let _ = jobs.try_send(Job { turn, input, id, masks });
        }
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        if let Some((jobs, thread)) = self.thread.take() {
            drop(jobs);
            let _ = thread.join();
        }
    }
}

impl Turn {
    /// Copies the input while `work` is done, as far as there is time.
    pub fn copy_beside<R>(&mut self, input: &Input<'_>, work: impl FnOnce() -> R) -> R {
        self.outcome = "skipped_not_copied";
        let buffers: Result<Vec<_>> = (0..input.buffer_count()).map(|at| input.buffer(at)).collect();
        let parts: Option<Vec<_>> =
            buffers.ok().and_then(|buffers| buffers.iter().map(|buffer| buffer.host()).collect());
        let Some(parts) = parts else { return work() };
        let (stop, pool, size) = (AtomicBool::new(false), &self.shared.pool, input.byte_size());
        let (result, memory) = thread::scope(|scope| {
            let copier = thread::Builder::new().name("spleenseg-copy".to_owned());
            let copier = copier.spawn_scoped(scope, || copy(&parts, size, pool, &stop));
            let result = work();
            stop.store(true, Ordering::Relaxed);
            (result, copier.ok().and_then(|copier| copier.join().ok()).flatten())
        });
        if let Some(memory) = memory {
            self.outcome = "request_failed"; // unless it goes on
            self.copy = Some(Copied { memory, data_type: input.data_type(), shape: input.shape().to_vec() });
        }
        result
    }
}

/// A copy of all parts, unless there is no memory for it, or it is told to stop.
fn copy(parts: &[&[u8]], size: usize, pool: &HostPool, stop: &AtomicBool) -> Option<HostMemory> {
    let mut memory = pool.take(size).ok()?;
    let mut rest = memory.as_mut_slice();
    for piece in parts.iter().flat_map(|part| part.chunks(PIECE)) {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let (place, after) = rest.split_at_mut_checked(piece.len())?;
        place.copy_from_slice(piece);
        rest = after;
    }
    rest.is_empty().then_some(memory)
}

/// The thread's own.
struct Worker {
    server: Server,
    name: String,
    shadow: ShadowModel,
    shared: Arc<Shared>,
    jobs: Receiver<Job>,
}

impl Worker {
    fn run(self) {
        while let Ok(Job { mut turn, input, id, masks }) = self.jobs.recv() {
            turn.outcome = match self.compare(&turn, input, &id, &masks) {
                Ok(()) => "compared",
                Err(e) => {
                    let (name, shadow) = (&self.name, &self.shadow.model);
                    log!(Warn, "{name}: request '{id}': no comparison with shadow model '{shadow}': {e}");
                    "shadow_failed"
                }
            };
        }
    }

    fn compare(&self, turn: &Turn, input: Copied, id: &str, masks: &[HostMemory]) -> Result<()> {
        let shadow = &self.shadow;
        let mut call = self.server.inference_request(&shadow.model, shadow.version)?;
        call.set_id(id)?;
        call.set_parameter(MARK, true)?;
        call.input(INPUT, input.data_type, &input.shape, input.memory)?;
        call.request_output(OUTPUTS.mask)?;
        let pending = call.send()?;
        let response = pending.wait(shadow.timeout, || self.shared.stopped.load(Ordering::Relaxed))?;
        response.error()?;
        let tensor = response.output(OUTPUTS.mask)?;
        let bytes = tensor.buffer.host().ok_or_else(|| {
            Error::unsupported(format!("its mask lies in {}; accepted is host memory", tensor.buffer.kind()))
        })?;
        let voxels: usize = masks.iter().map(|mask| mask.as_slice().len()).sum();
        if tensor.data_type.tensor_byte_size(tensor.shape)? != bytes.len()
            || tensor.data_type.byte_size().is_none_or(|size| bytes.len() != voxels * size)
        {
            return Err(Error::invalid_arg(format!(
                "its mask is {} {:?}; accepted are the {voxels} voxels of this model's",
                tensor.data_type, tensor.shape
            )));
        }
        let each = bytes.len() / masks.len().max(1);
        for (number, (ours, theirs)) in masks.iter().zip(bytes.chunks(each.max(1))).enumerate() {
            let found = Agreement::of(ours.as_slice(), theirs, tensor.data_type)?;
            let (dice, mismatched) = (found.dice(), found.mismatched);
            turn.shared.metrics.volume(dice, mismatched);
            if mismatched > 0 {
                let (name, shadow) = (&self.name, &shadow.model);
                log!(
                    Info,
                    "{name}: request '{id}': volume {number} differs from shadow model '{shadow}' in {mismatched} \
                     voxels, Dice {dice:.6}"
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_whole_or_none() {
        let bytes: Vec<u8> = (0..3 * PIECE + 5).map(|at| at as u8).collect();
        let parts = [&bytes[..7], &bytes[7..PIECE + 9], &[], &bytes[PIECE + 9..]];
        let (pool, go, stop) = (HostPool::new(1), AtomicBool::new(false), AtomicBool::new(true));
        assert_eq!(copy(&parts, bytes.len(), &pool, &go).unwrap().as_slice(), bytes);
        assert!(copy(&parts, bytes.len(), &pool, &stop).is_none());
        assert!(copy(&parts, bytes.len() + 1, &pool, &go).is_none(), "a byte is missing");
        assert!(copy(&parts, bytes.len() - 1, &pool, &go).is_none(), "a byte is left over");
    }
}
