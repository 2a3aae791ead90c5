//! What passes between the server's threads and the one that waits for the answer to an in-process request.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex, MutexGuard};

/// How often a waiting caller looks whether its own client gave up.
const CANCELLATION_POLL: Duration = Duration::from_millis(20);

/// The request and its inputs, until the server gives them back, and the responses, until somebody takes them.
pub(super) struct Handover<Q, I, R> {
    state: Mutex<State<Q, I, R>>,
    arrived: Condvar,
}

struct State<Q, I, R> {
    /// None once the server gave the request back (or never took it).
    request: Option<Q>,
    inputs: Vec<I>,
    responses: VecDeque<R>,
    complete: bool,
}

/// Why there is no answer.
pub(super) enum Waited {
    /// None came in time.
    TooLong,
    /// Nobody wants it any more.
    GaveUp,
}

impl<Q, I, R> Handover<Q, I, R> {
    pub fn new(request: Q, inputs: Vec<I>) -> Self {
        let state = State { request: Some(request), inputs, responses: VecDeque::new(), complete: false };
        Self { state: Mutex::new(state), arrived: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<Q, I, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server is done with the request, or did not take it: the caller deletes it, and then these inputs.
    pub fn release(&self) -> Vec<I> {
        let mut state = self.lock();
        state.request = None;
        std::mem::take(&mut state.inputs)
    }

    /// Calls `cancel` unless the answer is complete, or the server has given the request back, which it cannot do
    /// meanwhile.
    pub fn cancel(&self, cancel: impl FnOnce(&Q)) {
        let state = self.lock();
        if !state.complete
            && let Some(request) = &state.request
        {
            cancel(request);
        }
    }

    /// A response came, or only the word that it was the last.
    pub fn deliver(&self, response: Option<R>, last: bool) {
        let mut state = self.lock();
        state.responses.extend(response);
        state.complete |= last;
        drop(state);
        self.arrived.notify_all();
    }

    /// Waits for all responses.
    pub fn all(&self, timeout: Duration, gave_up: impl FnMut() -> bool) -> Result<VecDeque<R>, Waited> {
        let mut state = self.wait_until(timeout, gave_up, |state| state.complete)?;
        Ok(std::mem::take(&mut state.responses))
    }

    /// Waits for the next response; none once there are no more.
    pub fn next(&self, timeout: Duration, gave_up: impl FnMut() -> bool) -> Result<Option<R>, Waited> {
        let there = |state: &State<Q, I, R>| state.complete || !state.responses.is_empty();
        Ok(self.wait_until(timeout, gave_up, there)?.responses.pop_front())
    }

    fn wait_until(
        &self,
        timeout: Duration,
        mut gave_up: impl FnMut() -> bool,
        there: impl Fn(&State<Q, I, R>) -> bool,
    ) -> Result<MutexGuard<'_, State<Q, I, R>>, Waited> {
        let started = Instant::now();
        let mut state = self.lock();
        while !there(&state) {
            let left = timeout.checked_sub(started.elapsed()).filter(|left| !left.is_zero());
            let left = left.ok_or(Waited::TooLong)?;
            let waited = self.arrived.wait_timeout(state, left.min(CANCELLATION_POLL));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if !there(&state) {
                drop(state);
                if gave_up() {
                    return Err(Waited::GaveUp);
                }
                state = self.lock();
            }
        }
        Ok(state)
    }
}
