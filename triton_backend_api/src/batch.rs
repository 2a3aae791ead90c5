//! The requests of one execution.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::glue::Profile;
use crate::glue::boundary::catch;
use crate::reply::Reply;
use crate::request::Request;
use crate::statistics::{Timeline, now_ns};
use crate::{raw, sys};

/// The requests that the server hands over in one execution.
pub struct Batch {
    entries: Vec<Entry>,
    instance: NonNull<sys::TRITONBACKEND_ModelInstance>,
    profile: Arc<Profile>,
    /// Set where the author computes all of it at once.
    execution: Option<Timeline>,
}

/// One request of a batch, and its reply.
pub struct Entry {
    /// The request.
    pub request: Request,
    /// Its reply.
    pub reply: Reply,
    result: Option<Result<()>>,
}

/// The times of a batch that is computed as one execution.
pub struct Execution<'a>(&'a mut Timeline);

impl Execution<'_> {
    /// The inputs of all are ready.
    pub fn mark_compute_start(&mut self) {
        self.0.mark_compute_start();
    }

    /// All are computed.
    pub fn mark_compute_end(&mut self) {
        self.0.mark_compute_end();
    }
}

impl Entry {
    /// Fails this request alone; the others go on. The first error stands.
    pub fn fail(&mut self, error: Error) {
        if self.is_open() {
            self.result = Some(Err(error));
        }
    }

    /// Whether it has not failed.
    pub fn is_open(&self) -> bool {
        self.result.is_none() && !self.reply.is_sent()
    }
}

impl Batch {
    /// # Safety
    /// All pointers are live; the requests are this backend's if and only if this succeeds.
    pub(crate) unsafe fn new(
        instance: NonNull<sys::TRITONBACKEND_ModelInstance>,
        requests: &[NonNull<sys::TRITONBACKEND_Request>],
        profile: Arc<Profile>,
    ) -> Result<Self> {
        // SAFETY: live requests of the server's.
        let replies = unsafe { replies(instance, requests, &profile) }?;
        let entries = requests
            .iter()
            .zip(replies)
            // SAFETY: released by this batch's drop, after the entry is gone.
            .map(|(request, reply)| Entry { request: unsafe { Request::new(*request) }, reply, result: None })
            .collect();
        Ok(Self { entries, instance, profile, execution: None })
    }

    /// The requests, in the server's order.
    pub fn entries(&mut self) -> &mut [Entry] {
        &mut self.entries
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// From here on all requests are computed together: one execution in the statistics, one set of times.
    ///
    /// The requests and the times come apart, so that times can be marked while inputs are borrowed.
    pub fn as_one_execution(&mut self) -> (&mut [Entry], Execution<'_>) {
        let timeline = self.execution.insert(Timeline::start());
        (&mut self.entries, Execution(timeline))
    }

    /// Answers one request at a time with what `infer` makes of it.
    pub(crate) fn for_each(&mut self, mut infer: impl FnMut(&Request, &mut Reply) -> Result<()>) {
        for entry in &mut self.entries {
            match entry.request.batch_size(self.profile.max_batch_size) {
                Ok(size) => {
                    entry.reply.begin(size);
                    // A panic is this request's failure; the others of the batch go on.
                    let result = catch("infer", || infer(&entry.request, &mut entry.reply));
                    entry.reply.finish(result);
                }
                Err(e) => entry.reply.finish(Err(e)),
            }
        }
    }

    /// Answers whatever is open: with its own failure, else with `result`. All statistics come before all answers.
    pub(crate) fn finish(&mut self, result: Result<()>) {
        let mut size = 0;
        for entry in self.entries.iter_mut().filter(|entry| !entry.reply.is_sent()) {
            if let Some(timeline) = self.execution {
                entry.reply.join(timeline);
            }
            let own = entry.result.get_or_insert_with(|| result.clone());
            if own.is_ok() {
                size += entry.request.batch_size(self.profile.max_batch_size).unwrap_or(1);
            }
            entry.reply.report(own.is_ok());
        }
        if let (1.., Some(timeline)) = (size, self.execution) {
            let [start, compute_start, compute_end, end] = timeline.finish(now_ns());
            let instance = self.instance.as_ptr();
            // SAFETY: a live instance. Statistics that cannot be reported are nobody's failure.
            let _ = unsafe {
                raw::report_batch_statistics(instance, size, start, compute_start, compute_end, end)
            };
        }
        for entry in &mut self.entries {
            if let Some(result) = entry.result.take() {
                entry.reply.send(result);
            }
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.finish(Err(Error::internal("the backend ended without an answer to this request")));
        for entry in self.entries.drain(..) {
            let Entry { request, reply, .. } = entry;
            drop(reply);
            // SAFETY: taken over from the server, answered, and released here only.
            let released =
                unsafe { raw::request_release(request.as_raw(), sys::TRITONSERVER_REQUEST_RELEASE_ALL) };
            if let Err(e) = released {
                crate::log!(Error, "the server could not take a request back: {e}");
            }
        }
    }
}

/// One response a request. Where one cannot be made none is left: the requests are still the server's.
///
/// # Safety
/// All pointers are live and the server's.
pub(crate) unsafe fn replies(
    instance: NonNull<sys::TRITONBACKEND_ModelInstance>,
    requests: &[NonNull<sys::TRITONBACKEND_Request>],
    profile: &Arc<Profile>,
) -> Result<Vec<Reply>> {
    let mut replies = Vec::with_capacity(requests.len());
    for request in requests {
        // SAFETY: live, see above.
        match unsafe { Reply::new(*request, instance, profile.clone()) } {
            Ok(reply) => replies.push(reply),
            Err(e) => {
                replies.into_iter().for_each(Reply::discard);
                return Err(e);
            }
        }
    }
    Ok(replies)
}
