//! The host as a test holds it.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use triton_backend_api::sys::*;

use crate::backend::BackendSpec;
use crate::block::{self, GpuMemory};
use crate::child::{ChildCall, join};
use crate::error::HostError;
use crate::inference::Stage;
use crate::instance::BatchStatistics;
use crate::log::LogLine;
use crate::state::{State, lock};

/// The ABI's calls name no server, so there is one at a time: tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// How long a test may hold the host. A backend that hangs would hang the test run; this ends it with a word.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// The server of one test. While it lives other tests wait for theirs.
pub struct FakeHost {
    server: usize,
    /// The backend of models that are loaded without one, which nobody initialises.
    backend: usize,
    _watch: Sender<()>,
    _turn: MutexGuard<'static, ()>,
}

impl Default for FakeHost {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeHost {
    /// A fresh server.
    pub fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: it returns the calls of this host, each of the type that the ABI gives it.
        unsafe { triton_backend_api::glue::look_in(crate::late::lookup) };
        let mut state = lock();
        *state = State::default();
        block::use_gpu_memory(None);
        let (server, backend) = (state.servers.insert(()), state.new_backend(BackendSpec::default()));
        Self { server, backend, _watch: watch(), _turn: turn }
    }

    pub(crate) fn backend(&self) -> usize {
        self.backend
    }

    pub(crate) fn server(&self) -> usize {
        self.server
    }

    /// The backend API version that it claims.
    pub fn set_api_version(&self, major: u32, minor: u32) {
        lock().api_version = (major, minor);
    }

    /// Memory that is declared to be a GPU's comes from here from now on, and clients and child models use it there.
    pub fn use_gpu_memory(&self, memory: GpuMemory) {
        block::use_gpu_memory(Some(memory));
    }

    /// Adds a model that answers in-process requests.
    pub fn child(&self, name: &str, model: impl Fn(&mut ChildCall) + Send + Sync + 'static) {
        lock().children.models.insert(name.to_owned(), Arc::new(model));
    }

    /// Makes the nth call of `symbol` from now on fail, 1 being the next one.
    pub fn fail_next(&self, symbol: &'static str, nth: usize) {
        let error = HostError::new(TRITONSERVER_ERROR_UNKNOWN, format!("{symbol} was made to fail"));
        self.fail_next_with(symbol, nth, error);
    }

    /// The same, with a code and text of the test's choice.
    pub fn fail_next_with(&self, symbol: &'static str, nth: usize, error: HostError) {
        lock().fail(symbol, nth, error);
    }

    /// How many of the calls that were to fail never came.
    pub fn faults_left(&self) -> usize {
        lock().faults_left()
    }

    /// How often each call that can fail was made.
    pub fn calls(&self) -> BTreeMap<&'static str, usize> {
        lock().calls.clone()
    }

    /// Switches a log level off.
    pub fn silence(&self, level: TRITONSERVER_LogLevel) {
        lock().log.silent.push(level);
    }

    /// The log so far.
    pub fn log(&self) -> Vec<LogLine> {
        lock().log.lines.clone()
    }

    /// The statistics of executions so far.
    pub fn batch_statistics(&self) -> Vec<BatchStatistics> {
        lock().batch_statistics.clone()
    }

    /// Everything that the backend did against the rules so far, and, after waiting for the child models,
    /// everything that it left behind. Models should be unloaded before.
    pub fn violations(&self) -> Vec<String> {
        join();
        let mut state = lock();
        let mut found = std::mem::take(&mut state.violations);
        leaks(&state, &mut found);
        found
    }

    /// Fails the test where the backend broke a rule or left something behind.
    ///
    /// # Panics
    /// Then.
    #[track_caller]
    pub fn check(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "the backend broke rules of the host:\n  {}", violations.join("\n  "));
    }
}

impl Drop for FakeHost {
    fn drop(&mut self) {
        join();
    }
}

/// Ends the process where the host is not dropped in time.
fn watch() -> Sender<()> {
    let (sender, receiver) = channel::<()>();
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    std::thread::spawn(move || {
        if receiver.recv_timeout(TIME_LIMIT) == Err(RecvTimeoutError::Timeout) {
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("{test} hangs: not done after {TIME_LIMIT:?}\n").as_bytes(),
            );
            std::process::abort();
        }
    });
    sender
}

/// Every object that somebody should have ended.
fn leaks(state: &State, found: &mut Vec<String>) {
    let mut leaked = |what: String| found.push(format!("{what} was left behind"));
    for (handle, error) in state.errors.iter().filter(|(_, error)| !error.lent) {
        leaked(format!("{}, '{}',", state.errors.name(handle), error.describe()));
    }
    for (handle, request) in state.requests.iter().filter(|(_, request)| !request.release_failed) {
        leaked(format!("{} (id {:?})", state.requests.name(handle), request.id));
    }
    for (handle, request) in state.inferences.iter() {
        let whose = match request.stage {
            Stage::Filling => "never sent",
            Stage::UnderWay => "under way",
            Stage::GivenBack => "given back",
        };
        leaked(format!("{}, {whose},", state.inferences.name(handle)));
    }
    let traces = state.traces.iter().filter(|(_, trace)| !trace.of_request);
    state.memory.left().for_each(&mut leaked);
    let messages = state.messages.iter().filter(|(_, message)| !message.lent);
    let plain = (messages.map(|(handle, _)| state.messages.name(handle)))
        .chain(state.factories.iter().map(|(handle, _)| state.factories.name(handle)))
        .chain(state.response_statistics.iter().map(|(handle, _)| state.response_statistics.name(handle)))
        .chain(state.responses.iter().map(|(handle, _)| state.responses.name(handle)))
        .chain(state.inferred.iter().map(|(handle, _)| state.inferred.name(handle)))
        .chain(state.allocators.iter().map(|(handle, _)| state.allocators.name(handle)))
        .chain(state.families.iter().map(|(handle, _)| state.families.name(handle)))
        .chain(state.metrics.iter().map(|(handle, _)| state.metrics.name(handle)))
        .chain(state.metric_args.iter().map(|(handle, _)| state.metric_args.name(handle)))
        .chain(state.parameters.iter().map(|(handle, _)| state.parameters.name(handle)))
        .chain(state.models.iter().map(|(handle, _)| state.models.name(handle)))
        .chain(traces.map(|(handle, _)| state.traces.name(handle)));
    plain.for_each(leaked);
}
