//! As `faults.rs`, for what a backend does beside requests: every call that can fail is made to fail once in each
//! place. Nothing may leak, be freed twice, hang or panic, and the failure must come to light.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::server_side::CALLS;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use triton_backend_api::glue::Sequential;
use triton_backend_api::metrics::{Counter, Family, Gauge, Histogram};
use triton_backend_api::*;
use triton_fake_host::{EntryPoints, FakeHost, ModelSpec, TestRequest};

/// Calls whose failure costs nobody anything.
const TOLERATED: [&str; 4] = [
    "TRITONSERVER_LogMessage",
    "TRITONSERVER_MessageDelete",
    "TRITONSERVER_MetricArgsDelete",
    "TRITONSERVER_ResponseAllocatorDelete",
];

/// Calls that cannot say why they fail, and what is said for them.
const MUTE: [(&str, &str); 1] = [("TRITONSERVER_ParameterNew", "the server made no parameter")];

/// Which life it is: what one life loses (see below) must not be found by the next one.
static LIFE: AtomicUsize = AtomicUsize::new(0);
/// How many of the author's things live.
static ALIVE: AtomicUsize = AtomicUsize::new(0);

struct Alive;

impl Alive {
    fn new() -> Self {
        ALIVE.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Everything {
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
        Ok(Self { requests, in_use, durations, _alive })
    }
}

struct Instance(#[allow(dead_code)] Alive); // counted while it lives

impl triton_backend_api::Instance for Instance {
    type Model = Everything;

    fn create(_: &Everything, _: &InstanceContext) -> Result<Self> {
        Ok(Self(Alive::new()))
    }

    fn infer(&mut self, model: &Everything, _: &Request, _: &mut Reply) -> Result<()> {
        triton_backend_api::log!(Info, "a request");
        model.requests.increment(1.0)?;
        model.in_use.set(1.0)?;
        model.in_use.add(-1.0)?;
        model.durations.observe(model.requests.value()?)
    }
}

/// What one life came to.
struct Life {
    calls: BTreeMap<&'static str, usize>,
    texts: String,
    violations: Vec<String>,
    alive: usize,
}

/// Loads, executes a request, unloads; with the nth call of a symbol failing, if one is to.
fn live(fault: Option<(&'static str, usize)>) -> Life {
    let host = FakeHost::new();
    LIFE.fetch_add(1, Ordering::SeqCst);
    if let Some((symbol, nth)) = fault {
        host.fail_next(symbol, nth);
    }
    let entry_points = EntryPoints::of::<Sequential<Instance>>();
    let mut errors = Vec::new();
    match host.load(entry_points, ModelSpec::new("everything", serde_json::json!({}))) {
        Err(e) => errors.push(e),
        Ok(model) => {
            let execution = model.execute([TestRequest::new([])]);
            errors.extend(execution.result.clone().err());
            errors.extend(execution.wait()[0].result().err());
            model.unload();
        }
    }
    assert_eq!(host.faults_left(), 0, "{fault:?} never came");
    let violations = host.violations();
    let lines = host.log().into_iter().map(|line| line.message);
    let texts: Vec<_> = errors.into_iter().map(|e| e.message).chain(lines).collect();
    Life { calls: host.calls(), texts: texts.join("\n  "), violations, alive: ALIVE.load(Ordering::SeqCst) }
}

#[test]
fn every_call_beside_requests_fails_once() {
    let healthy = live(None);
    assert_eq!((healthy.violations, healthy.texts.as_str(), healthy.alive), (vec![], "a request", 0));
    let of_requests = |symbol: &str| symbol.starts_with("TRITONBACKEND_Re");
    for (symbol, count) in healthy.calls.into_iter().filter(|(symbol, _)| symbol.starts_with("TRITON")) {
        if of_requests(symbol) {
            continue; // see faults.rs
        }
        for nth in 1..=count {
            let what = format!("call {nth} of {count} of {symbol}");
            let life = live(Some((symbol, nth)));
            let texts = life.texts;
            assert!(!texts.contains("fault in"), "{what} panicked:\n  {texts}");
            let mute = MUTE.iter().find(|row| row.0 == symbol);
            let made = format!("{symbol} was made to fail");
            let told = texts.contains(mute.map_or(made.as_str(), |row| row.1));
            let tolerated = TOLERATED.contains(&symbol) || symbol.ends_with("Statistics");
            assert!(told != tolerated, "{what} did not come to light as it should:\n  {texts}");
            // A server that does not say where the state is cannot have it freed.
            let lost =
                symbol.ends_with("State") && !symbol.ends_with("SetState") && texts.contains("finalizing");
            if lost {
                ALIVE.store(0, Ordering::SeqCst);
            } else {
                assert!(life.violations.is_empty(), "{what}:\n  {}", life.violations.join("\n  "));
                assert_eq!(life.alive, 0, "{what}: models or instances of the author's were not freed");
            }
        }
    }
}

#[test]
fn the_life_beside_requests_makes_every_call_that_there_is() {
    let made = live(None).calls;
    let cannot_fail = ["TRITONSERVER_ParameterDelete"];
    let missing: Vec<_> =
        CALLS.into_iter().filter(|name| !made.contains_key(name) && !cannot_fail.contains(name)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "calls that no fault test makes fail");
}
