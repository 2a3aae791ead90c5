//! The two ways to execute, behind one face for the entry points.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, TryLockError};

use crate::batch::{Batch, replies};
use crate::error::{Error, Result};
use crate::glue::boundary::catch;
use crate::glue::gate::Gate;
use crate::glue::pool::Pool;
use crate::instance::{ConcurrentInstance, Instance, InstanceContext};
use crate::model::Model;
use crate::owned::Exchange;
use crate::sys;

/// What every execution of a model needs to know of it.
pub struct Profile {
    pub(crate) name: String,
    pub(crate) max_batch_size: u64,
    /// Whether it may send any number of responses to a request.
    pub(crate) decoupled: bool,
}

/// What the entry points need of an instance.
pub trait Runner: Send + Sync + Sized + 'static {
    /// The author's model.
    type Model: Model;

    /// Makes the author's instance.
    fn create(model: &Arc<Self::Model>, cx: &InstanceContext) -> Result<Self>;

    /// Whether it can answer requests.
    fn ready(&self) -> Result<()>;

    /// Takes the requests over and answers them, now or later. An error leaves all of them with the server.
    ///
    /// # Safety
    /// `instance` and `requests` are what the server passed to Execute.
    unsafe fn execute(
        &self,
        model: &Arc<Self::Model>,
        profile: &Arc<Profile>,
        instance: NonNull<sys::TRITONBACKEND_ModelInstance>,
        requests: &[NonNull<sys::TRITONBACKEND_Request>],
    ) -> Result<()>;
}

/// Runs an [`Instance`].
pub struct Sequential<I>(Mutex<I>);

impl<I: Instance> Runner for Sequential<I> {
    type Model = I::Model;

    fn create(model: &Arc<I::Model>, cx: &InstanceContext) -> Result<Self> {
        I::create(model, cx).map(|instance| Self(Mutex::new(instance)))
    }

    fn ready(&self) -> Result<()> {
        Ok(())
    }

    unsafe fn execute(
        &self,
        model: &Arc<I::Model>,
        profile: &Arc<Profile>,
        instance: NonNull<sys::TRITONBACKEND_ModelInstance>,
        requests: &[NonNull<sys::TRITONBACKEND_Request>],
    ) -> Result<()> {
        // The server promises one execution at a time; a lock that is never waited for holds it to that. An
        // earlier panic of the author's left the instance as it was: usable, as far as anyone can tell.
        let mut author = match self.0.try_lock() {
            Ok(author) => author,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::internal("the server executes one instance twice at a time"));
            }
        };
        // SAFETY: the server's, see above.
        let mut batch = unsafe { Batch::new(instance, requests, profile.clone()) }?;
        let outcome = catch("execute", || author.execute(model, &mut batch));
        drop(author);
        batch.finish(outcome);
        Ok(())
    }
}

/// Runs a [`ConcurrentInstance`].
pub struct Concurrent<I> {
    author: Arc<I>,
    gate: Arc<Gate>,
    pool: Pool,
}

impl<I: ConcurrentInstance> Runner for Concurrent<I> {
    type Model = I::Model;

    fn create(model: &Arc<I::Model>, cx: &InstanceContext) -> Result<Self> {
        let author = I::create(model, cx)?;
        let limit = author.max_in_flight();
        let (gate, pool) = (Gate::new(limit), Pool::new(cx.name(), limit)?);
        Ok(Self { author: Arc::new(author), gate, pool })
    }

    fn ready(&self) -> Result<()> {
        self.author.ready()
    }

    unsafe fn execute(
        &self,
        model: &Arc<I::Model>,
        profile: &Arc<Profile>,
        instance: NonNull<sys::TRITONBACKEND_ModelInstance>,
        requests: &[NonNull<sys::TRITONBACKEND_Request>],
    ) -> Result<()> {
        // SAFETY: the server's, see above.
        let replies = unsafe { replies(instance, requests, profile) }?;
        // All are taken over before any is started: from here on nothing may return an error to the server.
        let exchanges: Vec<_> = requests
            .iter()
            .zip(replies)
            // SAFETY: live requests of the server's, which are ours now, each with its reply.
            .map(|(request, reply)| unsafe { Exchange::hand_over(*request, reply) })
            .collect();
        for (exchange, request, mut reply) in exchanges {
            exchange.enter(self.gate.enter());
            match request.batch_size(profile.max_batch_size) {
                Ok(size) => reply.begin(size),
                Err(e) => {
                    reply.send(Err(e));
                    continue;
                }
            }
            let (author, model) = (self.author.clone(), model.clone());
            let job = move || {
                let started = catch("start", || {
                    author.start(&model, request, reply);
                    Ok(())
                });
                if let Err(panic) = started {
                    exchange.answer_orphan(panic);
                }
                // The author's things go before the request does: releasing it can unload the model.
                drop((author, model));
                drop(exchange);
            };
            if let Err(e) = self.pool.spawn(job) {
                // The job is gone, and with it request and reply, which answered for themselves.
                crate::log!(Error, "a request could not be started: {e}");
            }
        }
        Ok(())
    }
}

impl<I> Drop for Concurrent<I> {
    fn drop(&mut self) {
        self.gate.wait_until_empty();
    }
}
