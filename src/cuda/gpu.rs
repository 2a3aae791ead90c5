//! The GPU of an instance: its context, its stream, its kernels, and the memory that it keeps.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use triton_backend_api::{Result, log};

use super::bridge::Answers;
use super::context::Context;
use super::driver;
use super::error::{self, CudaError};
use super::memory::{OnDevice, OnHost, Pool};
use super::module::{Code, Kernels};
use super::session::Session;
use super::stream::Stream;
use super::transfer::PIECES;
use crate::cpu::Threads;

/// A GPU, as one instance has it.
pub struct Gpu {
    /// The instance's name, for the log.
    name: String,
    kernels: Kernels,
    stream: Arc<Stream>,
    memory: Arc<Pool<OnDevice>>,
    answers: Arc<Answers>,
    pinned: Arc<Pool<OnHost>>,
    peers: Mutex<HashMap<i64, Arc<Context>>>,
    threads: Threads,
    multiprocessors: u32,
    description: String,
    /// What ended the context, once something has.
    broken: OnceLock<String>,
    context: Arc<Context>,
}

impl Gpu {
    /// Opens the GPU with this number for the instance `name`, keeping the buffers of `volumes` volumes at a time for the
    /// next ones; `threads` copy between the server's memory and pinned memory.
    pub fn open(name: &str, id: i32, code: Code, threads: Threads, volumes: usize) -> error::Result<Self> {
        driver::start()?;
        let context = Arc::new(Context::retain(id)?);
        let current = context.enter()?;
        let (gpu_name, capability) = context.description()?;
        let kernels = Kernels::load(&context, &gpu_name, capability, code)?;
        let multiprocessors = context.multiprocessors()?;
        drop(current);
        let description =
            format!("GPU {id} ({gpu_name}, compute capability {}.{})", capability / 10, capability % 10);
        let stream = Arc::new(Stream::new(context.clone())?);
        // Each volume has an input, a resized volume, scores, labels and their contour on both grids, working memory for three
        // steps, an output, and counts: 12 blocks, and a few of other sizes for volumes of other sizes.
        let memory = Pool::new(stream.clone(), 16 * volumes);
        Ok(Self {
            name: name.to_owned(),
            kernels,
            answers: Arc::new(Answers { memory: memory.clone(), stream: stream.clone() }),
            memory,
            // The pieces of a transfer, and counts.
            pinned: Pool::new(stream.clone(), (PIECES + 1) * volumes),
            stream,
            peers: Mutex::default(),
            threads,
            multiprocessors,
            description,
            broken: OnceLock::new(),
            context,
        })
    }

    /// Its number, name and compute capability.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// What its kernels were loaded from: `machine code for sm_86`, or `PTX` and why, unless it was asked for.
    pub fn image(&self) -> &str {
        &self.kernels.image
    }

    /// Begins a request on the calling thread.
    pub fn session(&self) -> Result<Session<'_>> {
        Session::new(self)
    }

    /// UNAVAILABLE once an error has ended the context.
    pub fn ready(&self) -> Result<()> {
        match self.broken.get() {
            None => Ok(()),
            Some(why) => Err(CudaError::Broken(why.clone()).into_error()),
        }
    }

    /// An outcome of the driver's, as a request's. What ends the context is noted, once.
    pub(super) fn check<T>(&self, outcome: error::Result<T>) -> Result<T> {
        outcome.map_err(|error| {
            if error.is_sticky() && self.broken.set(error.to_string()).is_ok() {
                let (name, gpu) = (&self.name, &self.description);
                log!(
                    Error,
                    "{name}: {gpu}: {error}: the instance needs a reload, and answers no request before it"
                );
            }
            error.into_error()
        })
    }

    /// The context of another GPU, kept from then on.
    pub(super) fn peer(&self, id: i64) -> error::Result<Arc<Context>> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = peers.get(&id) {
            return Ok(known.clone());
        }
        let context = Arc::new(Context::retain(i32::try_from(id).unwrap_or(-1))?);
        peers.insert(id, context.clone());
        Ok(context)
    }

    pub(super) fn id(&self) -> i64 {
        self.context.id().into()
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(super) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    pub(super) fn threads(&self) -> &Threads {
        &self.threads
    }

    pub(super) fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    pub(super) fn memory(&self) -> &Arc<Pool<OnDevice>> {
        &self.memory
    }

    pub(super) fn answers(&self) -> &Arc<Answers> {
        &self.answers
    }

    pub(super) fn pinned(&self) -> &Arc<Pool<OnHost>> {
        &self.pinned
    }
}
