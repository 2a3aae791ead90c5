//! As `faults.rs`, for what a backend does beside requests: every call that can fail is made to fail once in each
//! place. Nothing may leak, be freed twice, hang or panic, and the failure must come to light.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::faults::*;
use common::server_side::CALLS;
use common::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use triton_backend_api::glue::Sequential;
use triton_backend_api::metrics::{Counter, Family, Gauge, Histogram};
use triton_backend_api::*;
use triton_fake_host::BackendSpec;

/// Calls whose failure costs nobody anything.
const TOLERATED: [&str; 4] = [
    "TRITONSERVER_LogMessage",
    "TRITONSERVER_MessageDelete",
    "TRITONSERVER_MetricArgsDelete",
    "TRITONSERVER_ResponseAllocatorDelete",
];

/// Which life it is: what one life loses (see below) must not be found by the next one.
static LIFE: AtomicUsize = AtomicUsize::new(0);
/// What everything of the author's that lives holds.
static ALIVE: Mutex<Option<Arc<()>>> = Mutex::new(None);

struct Alive(#[allow(dead_code)] Arc<()>); // counted while it lives

impl Alive {
    fn new() -> Self {
        Self(ALIVE.lock().unwrap().clone().unwrap())
    }
}

/// A backend that asks for all there is.
struct Shared(#[allow(dead_code)] Alive, #[allow(dead_code)] ServerMemory); // held while it lives

impl Backend for Shared {
    fn initialize(cx: &BackendContext) -> Result<Self> {
        let alive = Alive::new();
        let (settings, artifacts) = (cx.settings()?, cx.artifacts()?);
        if !settings.is_empty() || !matches!(artifacts, Artifacts::Folder(_)) {
            return Err(Error::invalid_arg("something else was asked for"));
        }
        cx.set_execution_policy(cx.execution_policy()?)?;
        Ok(Self(alive, cx.memory()?.allocate(MemoryKind::Pinned, 16)?))
    }

    fn parallel_instance_loading() -> bool {
        true
    }
}

struct Everything {
    _shared: Arc<Shared>,
    memory: MemoryManager,
    server: Server,
    requests: Counter,
    in_use: Gauge,
    durations: Histogram,
    _alive: Alive,
}

impl Model for Everything {
    fn load(cx: &ModelContext) -> Result<Self> {
        let _alive = Alive::new();
        let labels = [("model", cx.name()), ("version", "1")];
        let family = |name| format!("test_{name}_{}", LIFE.load(Ordering::SeqCst));
        let requests = Family::counter(&family("requests_total"), "Requests")?.metric(&labels)?;
        let in_use = Family::gauge(&family("in_use"), "In use")?.metric(&labels)?;
        let durations = Family::histogram(&family("durations"), "Durations", &[0.1, 1.0])?.metric(&labels)?;
        let (_shared, memory, server) = (cx.backend()?, cx.memory(), cx.server().clone());
        Ok(Self { _shared, memory, server, requests, in_use, durations, _alive })
    }
}

struct Instance(#[allow(dead_code)] Alive); // counted while it lives

impl triton_backend_api::Instance for Instance {
    type Model = Everything;

    fn create(_: &Everything, cx: &InstanceContext) -> Result<Self> {
        let alive = Alive::new();
        cx.host_policy()?;
        match (cx.is_passive()?, cx.profiles()?.len(), cx.secondary_devices()?.len()) {
            (false, 1, 1) => Ok(Self(alive)),
            _ => Err(Error::invalid_arg("another instance was asked for")),
        }
    }

    fn infer(&mut self, model: &Everything, _: &Request, _: &mut Reply) -> Result<()> {
        triton_backend_api::log!(Info, "a request");
        model.requests.increment(1.0)?;
        model.in_use.set(1.0)?;
        model.in_use.add(-1.0)?;
        model.durations.observe(model.requests.value()?)?;
        let (server, device) = (&model.server, model.memory.allocate(MemoryKind::Gpu(0), 8)?);
        if !server.is_live()? || !server.is_ready()? || device.byte_size() != 8 {
            return Err(Error::unavailable("not now"));
        }
        server.metadata()?;
        server.model_index(true)?;
        server.model_metadata("under_test", -1)?;
        server.model_statistics("under_test", 1)?;
        server.model_config("under_test", -1).map(|_| ())
    }
}

/// Loads, executes a request, unloads; with the nth call of a symbol failing, if one is to.
fn live(fault: Option<(&'static str, usize)>) -> Life {
    let host = FakeHost::new();
    LIFE.fetch_add(1, Ordering::SeqCst);
    let script = Script::new(echo);
    *ALIVE.lock().unwrap() = Some(script.alive.clone());
    if let Some((symbol, nth)) = fault {
        host.fail_next(symbol, nth);
    }
    host.set_gpus(1);
    let entry_points = EntryPoints::with_backend::<Shared, Sequential<Instance>>();
    let mut spec = spec(&script);
    spec.config["instance_group"] =
        serde_json::json!([{"profile": ["a"], "secondary_devices": [{"kind": "b"}]}]);
    let life = || {
        let backend = host.load_backend(entry_points, BackendSpec::default())?;
        // The server goes on where the attributes fail.
        let mut errors = Vec::from_iter(backend.attributes().err());
        let model = backend.load(spec)?;
        let execution = model.execute([request(&[1.0])]);
        errors.extend(execution.result.clone().err());
        errors.extend(execution.wait()[0].result().err());
        Ok(errors)
    };
    let errors = life().unwrap_or_else(|e| vec![e]);
    *ALIVE.lock().unwrap() = None;
    assert_eq!(host.faults_left(), 0, "{fault:?} never came");
    Life::ended(&host, script, errors)
}

#[test]
fn every_call_beside_requests_fails_once() {
    assert_eq!(live(None).texts, ["a request"]);
    let tolerated = |symbol: &str| TOLERATED.contains(&symbol) || symbol.contains("Report");
    // A label that cannot be made cannot say why: see the test of it in metrics.rs.
    let mute = |symbol: &str| symbol == "TRITONSERVER_ParameterNew";
    let failed = fail_each_call_once("beside requests", live, tolerated, mute);
    assert!(failed > 70, "{failed} failures are too few for a whole life");
}

#[test]
fn the_life_beside_requests_makes_every_call_that_there_is() {
    let made = live(None).calls;
    let cannot_fail = ["TRITONSERVER_ParameterDelete"];
    let missing: Vec<_> =
        CALLS.into_iter().filter(|name| !made.contains_key(name) && !cannot_fail.contains(name)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "calls that no fault test makes fail");
}
