//! A model under test: loaded, executed, unloaded.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use triton_backend_api::sys::*;

use crate::answer::{Answer, now_ns};
use crate::entry_points::EntryPoints;
use crate::error::{HostError, take};
use crate::factory::Common;
use crate::host::FakeHost;
use crate::instance::StatePointer;
use crate::model::{ModelObject, unload, unload_if_idle};
use crate::request::{ParameterObject, RequestObject};
use crate::state::{CHANGED, State, lock};
use crate::table::pointer;
use crate::test_request::{TestRequest, c_string};
use crate::trace::TraceObject;

/// How long an answer is waited for before the test fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// A model to be loaded.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // what the ABI tells of a model
pub struct ModelSpec {
    pub name: String,
    pub version: u64,
    pub artifact_type: TRITONBACKEND_ArtifactType,
    pub repository: PathBuf,
    pub config: Value,
    pub auto_complete: bool,
    /// Kind and device of each of its instances.
    pub instances: Vec<(TRITONSERVER_InstanceGroupKind, i32)>,
}

impl ModelSpec {
    /// A model of that configuration with one instance on the CPU.
    pub fn new(name: &str, config: Value) -> Self {
        Self {
            name: name.to_owned(),
            version: 1,
            artifact_type: TRITONBACKEND_ARTIFACT_FILESYSTEM,
            repository: PathBuf::from("/models").join(name),
            config,
            auto_complete: true,
            instances: vec![(TRITONSERVER_INSTANCEGROUPKIND_CPU, 0)],
        }
    }
}

/// A loaded model. Dropping it unloads it.
pub struct LoadedModel<'h> {
    _host: &'h FakeHost,
    handle: usize,
    instances: Vec<usize>,
    entry_points: EntryPoints,
}

/// One call of Execute and what came of it.
pub struct Execution {
    requests: Vec<usize>,
    /// What Execute returned.
    pub result: Result<(), HostError>,
}

impl FakeHost {
    /// Loads a model as the server does: what fails to load is finalized too. Its backend is not initialised; where it
    /// has to be, see [`FakeHost::load_backend`].
    pub fn load(&self, entry_points: EntryPoints, spec: ModelSpec) -> Result<LoadedModel<'_>, HostError> {
        self.load_of(self.backend(), entry_points, spec)
    }

    pub(crate) fn load_of(
        &self,
        backend: usize,
        entry_points: EntryPoints,
        spec: ModelSpec,
    ) -> Result<LoadedModel<'_>, HostError> {
        let mut state = lock();
        let model = state.models.insert(ModelObject {
            entry_points,
            backend,
            server: self.server(),
            name: c_string(&spec.name),
            version: spec.version,
            artifact_type: spec.artifact_type,
            repository: c_string(&spec.repository.to_string_lossy()),
            config: spec.config.clone(),
            auto_complete: spec.auto_complete,
            state: StatePointer(std::ptr::null_mut()),
            instances: Vec::new(),
            unloading: false,
            going: false,
        });
        drop(state);
        let mut loaded = LoadedModel { _host: self, handle: model, instances: Vec::new(), entry_points };
        // SAFETY: a handle of this host; called as the ABI says.
        take(unsafe { (entry_points.model_initialize)(pointer(model)) })?;
        for (index, (kind, device_id)) in spec.instances.iter().enumerate() {
            let mut state = lock();
            let name = format!("{}_{index}", spec.name);
            let instance = state.new_instance(model, &name, (*kind, *device_id), &spec.config);
            if let Ok(model) = state.models.get(model) {
                model.instances.push(instance);
            }
            drop(state);
            loaded.instances.push(instance);
            // SAFETY: as above; its model is initialised.
            take(unsafe { (entry_points.instance_initialize)(pointer(instance)) })?;
        }
        Ok(loaded)
    }
}

impl LoadedModel<'_> {
    /// Its configuration as the server has it now.
    pub fn config(&self) -> Value {
        lock().models.get(self.handle).map_or(json!(null), |model| model.config.clone())
    }

    /// Calls ModelInstanceReady of its first instance.
    pub fn ready(&self) -> Result<(), HostError> {
        let instance = self.instances.first().copied().unwrap_or_default();
        // SAFETY: a handle of this host; called as the ABI says.
        take(unsafe { (self.entry_points.instance_ready)(pointer(instance)) })
    }

    /// Executes requests on the first instance. What Execute takes over can be answered later: see
    /// [`Execution::wait`].
    pub fn execute(&self, requests: impl IntoIterator<Item = TestRequest>) -> Execution {
        self.execute_on(0, requests)
    }

    /// Executes requests on an instance.
    pub fn execute_on(&self, instance: usize, requests: impl IntoIterator<Item = TestRequest>) -> Execution {
        let instance = self.instances.get(instance).copied().unwrap_or_default();
        let requests: Vec<_> = requests.into_iter().map(|request| self.take_in(request)).collect();
        let mut pointers: Vec<_> = requests.iter().map(|request| pointer(*request)).collect();
        if let Ok(instance) = lock().instances.get(instance) {
            instance.executing = true;
        }
        // SAFETY: handles of this host; called as the ABI says.
        let result = take(unsafe {
            (self.entry_points.instance_execute)(
                pointer(instance),
                pointers.as_mut_ptr(),
                pointers.len() as u32,
            )
        });
        let mut state = lock();
        if let Ok(instance) = state.instances.get(instance) {
            instance.executing = false;
        }
        if let Err(e) = &result {
            for request in &requests {
                let (open, name) = (state.open_responses(*request), state.requests.name(*request));
                if open > 0 {
                    state.violation(format!("Execute failed and left {open} responses to {name} behind"));
                }
                if state.end_request(*request, "left with the server by Execute").is_err() {
                    state.violation(format!("Execute failed, though {name} was released before"));
                } else if !state.answer(*request).responses.is_empty() {
                    state.violation(format!("Execute failed, though it had answered {name}"));
                }
                state.answer(*request).refused = Some(e.clone());
            }
        }
        drop(state);
        unload_if_idle(self.handle);
        Execution { requests, result }
    }

    /// Puts a request into the backend's hands.
    fn take_in(&self, request: TestRequest) -> usize {
        let inputs: Vec<_> = request.inputs.into_iter().map(crate::test_request::TestInput::build).collect();
        let mut state = lock();
        let inputs = inputs.into_iter().map(|input| state.inputs.insert(input)).collect();
        let trace = request.traced.then(|| state.traces.insert(TraceObject { of_request: true }));
        // As the server does: sorted, and all where none is named.
        let mut outputs: BTreeSet<String> = request.outputs.into_iter().collect();
        if outputs.is_empty() {
            let config = state.models.get(self.handle).map_or(json!(null), |model| model.config.clone());
            let declared = config.get("output").and_then(Value::as_array).cloned().unwrap_or_default();
            outputs.extend(declared.iter().filter_map(|output| output["name"].as_str().map(str::to_owned)));
        }
        let config = state.models.get(self.handle).map_or(json!(null), |model| model.config.clone());
        let common = Common {
            model: self.handle,
            decoupled: config["model_transaction_policy"]["decoupled"] == json!(true),
            cancelled: request.cancelled.into(),
            places: request.places,
        };
        state.requests.insert(RequestObject {
            common: Arc::new(common),
            id: c_string(&request.id),
            correlation: request.correlation,
            flags: request.flags,
            timeout_us: request.timeout_us,
            parameters: request
                .parameters
                .into_iter()
                .map(|(name, value)| ParameterObject::new(&name, value))
                .collect(),
            inputs,
            outputs: outputs.iter().map(|name| c_string(name)).collect(),
            trace,
            since_ns: now_ns(),
            release_failed: false,
        })
    }

    /// Unloads it on the thread that lets go of it last: this one, or the one that releases its last request.
    pub fn unload_when_idle(&self) {
        if let Ok(model) = lock().models.get(self.handle) {
            model.unloading = true;
        }
        unload_if_idle(self.handle);
    }

    /// Waits until it is unloaded; false where that takes too long.
    pub fn wait_until_unloaded(&self) -> bool {
        wait(|state| !state.models.is_live(self.handle))
    }

    /// Unloads it now. The server does so only when no request is left, so the test should have waited.
    pub fn unload(self) {}
}

impl Drop for LoadedModel<'_> {
    fn drop(&mut self) {
        let mut state = lock();
        let Ok(model) = state.models.get(self.handle) else { return };
        if std::mem::replace(&mut model.going, true) {
            drop(state);
            self.wait_until_unloaded();
            return;
        }
        drop(state);
        unload(self.handle, &self.entry_points, &self.instances);
    }
}

impl Execution {
    /// Waits until all its requests are left with the server, or released with nothing left that could answer them, and
    /// says what became of each.
    ///
    /// # Panics
    /// Where that takes more than two minutes.
    pub fn wait(&self) -> Vec<Answer> {
        let done = wait(|state| self.requests.iter().all(|request| done(state, *request)));
        assert!(done, "requests are still open after {PATIENCE:?}");
        self.answers()
    }

    /// What became of each request so far.
    pub fn answers(&self) -> Vec<Answer> {
        let state = lock();
        self.requests.iter().map(|request| state.answers.get(request).cloned().unwrap_or_default()).collect()
    }

    /// How many requests are neither left with the server nor both released and answered.
    pub fn open(&self) -> usize {
        let state = lock();
        self.requests.iter().filter(|request| !done(&state, **request)).count()
    }

    /// Its client gives a request up.
    pub fn cancel(&self, index: usize) {
        if let Some(request) = self.requests.get(index)
            && let Some(common) = common(&mut lock(), *request)
        {
            common.cancelled.store(true, Ordering::SeqCst);
        }
    }
}

/// What is left of a request: itself, or what answers it after its release.
fn common(state: &mut State, request: usize) -> Option<Arc<Common>> {
    let of_factory = state.factories.iter().find(|(_, factory)| factory.request == request);
    let of_factory = of_factory.map(|(_, factory)| factory.common.clone());
    state.requests.get(request).map(|request| request.common.clone()).ok().or(of_factory)
}

fn done(state: &State, request: usize) -> bool {
    let released = !state.requests.is_live(request)
        || state.answers.get(&request).is_some_and(|answer| answer.released > 0);
    released && !state.has_factory(request)
}

/// Waits until something is so; false where that takes too long.
fn wait(so: impl Fn(&State) -> bool) -> bool {
    let until = Instant::now() + PATIENCE;
    let mut state = lock();
    while !so(&state) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        state = CHANGED.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    true
}
