//! One author for all tests: its model and its instances do what the test's script says, in both ways to execute.

#![allow(dead_code, unused_imports)] // each test executable uses its part
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a helper of tests fails the test

pub mod child;
pub mod faults;
pub mod server_side;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Instant;

use serde_json::{Value, json};
use triton_backend_api::glue::{Concurrent, Sequential};
use triton_backend_api::*;
pub use triton_fake_host::{
    Answer, ChildCall, ChildOutput, Correlation, EntryPoints, FakeHost, HostError, LoadedModel, ModelSpec,
    TestInput, TestRequest, abi,
};

type Load = dyn Fn(&ModelContext) -> Result<()> + Send + Sync;
type Create = dyn Fn(&InstanceContext) -> Result<()> + Send + Sync;
type Infer = dyn Fn(&Author, &Request, &mut Reply) -> Result<()> + Send + Sync;
type Execute = dyn Fn(&Author, &mut Batch) -> Result<()> + Send + Sync;
type Start = dyn Fn(&Author, OwnedRequest, OwnedReply) + Send + Sync;
type Complete = dyn Fn(&ModelConfig) -> Result<Option<Value>> + Send + Sync;
type Dropped = dyn Fn(&str) + Send + Sync;

/// What the author does at each point. Instances that take requests over use `infer` too, unless `start` is set.
#[derive(Clone)]
pub struct Script {
    pub load: Arc<Load>,
    pub create: Arc<Create>,
    pub infer: Arc<Infer>,
    pub execute: Option<Arc<Execute>>,
    pub start: Option<Arc<Start>>,
    pub complete: Arc<Complete>,
    /// Called when the author's "model" or "instance" is dropped.
    pub dropped: Arc<Dropped>,
    pub max_in_flight: usize,
    /// Held by everything of the author's that lives.
    pub alive: Arc<()>,
}

impl Script {
    pub fn new(infer: impl Fn(&Author, &Request, &mut Reply) -> Result<()> + Send + Sync + 'static) -> Self {
        Self {
            load: Arc::new(|_| Ok(())),
            create: Arc::new(|_| Ok(())),
            infer: Arc::new(infer),
            execute: None,
            start: None,
            complete: Arc::new(|_| Ok(None)),
            dropped: Arc::new(|_| ()),
            max_in_flight: 2,
            alive: Arc::new(()),
        }
    }

    pub fn start(start: impl Fn(&Author, OwnedRequest, OwnedReply) + Send + Sync + 'static) -> Self {
        Self { start: Some(Arc::new(start)), ..Self::new(|_, _, _| Err(Error::internal("not this way"))) }
    }

    /// Fails the test where anything of the author's is still there: it was not freed.
    #[track_caller]
    pub fn assert_freed(&self) {
        // The test's own script, and the copy that the registry has.
        assert_eq!(Arc::strong_count(&self.alive), 2, "models or instances of the author's were not freed");
    }
}

static SCRIPTS: LazyLock<Mutex<HashMap<String, Script>>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU64 = AtomicU64::new(0);

fn script_of(config: &ModelConfig) -> Script {
    let key = config.parameters().remove("script").unwrap();
    SCRIPTS.lock().unwrap().get(&key).unwrap().clone()
}

pub struct Author {
    pub script: Script,
    pub server: Server,
}

impl Model for Author {
    fn load(cx: &ModelContext) -> Result<Self> {
        let script = script_of(cx.config());
        (script.load)(cx)?;
        Ok(Self { script, server: cx.server().clone() })
    }

    fn auto_complete(config: &ModelConfig) -> Result<Option<Value>> {
        (script_of(config).complete)(config)
    }

    fn preferred_instances() -> &'static [InstanceKind] {
        &[InstanceKind::Gpu, InstanceKind::Cpu]
    }
}

impl Drop for Author {
    fn drop(&mut self) {
        (self.script.dropped)("model");
    }
}

struct Made(Script);

impl Made {
    fn new(model: &Author, cx: &InstanceContext) -> Result<Self> {
        (model.script.create)(cx)?;
        Ok(Self(model.script.clone()))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        (self.0.dropped)("instance");
    }
}

pub struct Waiting(Made);

impl Instance for Waiting {
    type Model = Author;

    fn create(model: &Author, cx: &InstanceContext) -> Result<Self> {
        Made::new(model, cx).map(Self)
    }

    fn infer(&mut self, model: &Author, request: &Request, reply: &mut Reply) -> Result<()> {
        (model.script.infer)(model, request, reply)
    }

    fn execute(&mut self, model: &Author, batch: &mut Batch) -> Result<()> {
        match &model.script.execute {
            Some(execute) => execute(model, batch),
            None => {
                // What the trait's own method does: see `Plain`.
                Plain.execute(model, batch)
            }
        }
    }
}

/// An instance without an `execute` of its own.
pub struct Plain;

impl Instance for Plain {
    type Model = Author;

    fn create(_: &Author, _: &InstanceContext) -> Result<Self> {
        Ok(Self)
    }

    fn infer(&mut self, model: &Author, request: &Request, reply: &mut Reply) -> Result<()> {
        (model.script.infer)(model, request, reply)
    }
}

pub struct Parallel(Made);

impl ConcurrentInstance for Parallel {
    type Model = Author;

    fn create(model: &Author, cx: &InstanceContext) -> Result<Self> {
        Made::new(model, cx).map(Self)
    }

    fn max_in_flight(&self) -> usize {
        self.0.0.max_in_flight
    }

    fn start(&self, model: &Author, request: OwnedRequest, mut reply: OwnedReply) {
        match &model.script.start {
            Some(start) => start(model, request, reply),
            None => {
                let result = (model.script.infer)(model, &request, &mut reply);
                reply.send(result);
            }
        }
    }
}

/// The two ways to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Waiting,
    Parallel,
}

pub const WAYS: [Way; 2] = [Way::Waiting, Way::Parallel];

impl Way {
    pub fn entry_points(self) -> EntryPoints {
        match self {
            Way::Waiting => EntryPoints::of::<Sequential<Waiting>>(),
            Way::Parallel => EntryPoints::of::<Concurrent<Parallel>>(),
        }
    }

    pub fn try_load<'h>(
        self,
        host: &'h FakeHost,
        script: &Script,
        change: impl FnOnce(&mut ModelSpec),
    ) -> Result<LoadedModel<'h>, HostError> {
        let mut spec = spec(script);
        change(&mut spec);
        host.load(self.entry_points(), spec)
    }

    pub fn load<'h>(self, host: &'h FakeHost, script: &Script) -> LoadedModel<'h> {
        self.try_load(host, script, |_| ()).unwrap()
    }
}

/// A model whose author follows the script.
pub fn spec(script: &Script) -> ModelSpec {
    let key = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
    SCRIPTS.lock().unwrap().insert(key.clone(), script.clone());
    let config = json!({
        "max_batch_size": 8,
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "parameters": {"script": {"string_value": key}},
    });
    ModelSpec::new("under_test", config)
}

/// Runs a test body once for each way, each time on a fresh host that is checked at the end.
pub fn both_ways(test: impl Fn(&FakeHost, Way)) {
    for way in WAYS {
        let host = FakeHost::new();
        test(&host, way);
        let violations = host.violations();
        assert!(violations.is_empty(), "{way:?}:\n  {}", violations.join("\n  "));
    }
}

/// OUTPUT0 is INPUT0.
pub fn echo(_: &Author, request: &Request, reply: &mut Reply) -> Result<()> {
    let input = request.input("INPUT0")?;
    let bytes = input.bytes()?;
    reply.mark_compute_start();
    reply.mark_compute_end();
    reply.output("OUTPUT0", input.data_type(), input.shape())?.bytes_mut()?.copy_from_slice(&bytes);
    Ok(())
}

/// A request with one row of numbers in INPUT0.
pub fn request(values: &[f32]) -> TestRequest {
    TestRequest::new([TestInput::fp32("INPUT0", &[1, values.len() as i64], values)])
}

pub fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// The error that a request was answered with.
#[track_caller]
pub fn error(answer: &Answer) -> HostError {
    answer.result().unwrap_err()
}

/// Three requests of one number each.
pub fn three() -> [TestRequest; 3] {
    [request(&[1.0]), request(&[2.0]), request(&[3.0])]
}

/// Waits for what another thread is about to do; false where it does not.
pub fn soon(is_so: impl Fn() -> bool) -> bool {
    let until = Instant::now() + child::LONG;
    while !is_so() {
        if Instant::now() > until {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Each answered once and released once, whatever it was answered with.
#[track_caller]
pub fn assert_done(answers: &[Answer]) {
    for answer in answers {
        assert_eq!((answer.responses.len(), answer.released), (1, 1), "{answer:?}");
        let success = answer.result().is_ok();
        let reported: Vec<_> = answer.statistics.iter().map(|report| report.success).collect();
        assert_eq!(reported, [success]);
    }
}

/// Lets a model send any number of responses.
pub fn decoupled(spec: &mut ModelSpec) {
    spec.config["model_transaction_policy"] = json!({"decoupled": true});
}
