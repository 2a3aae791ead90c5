//! What all models of a backend share: made once, told what the server knows, freed once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use serde_json::json;
use triton_backend_api::glue::{Concurrent, Sequential};
use triton_backend_api::*;
use triton_fake_host::{
    BackendAttributes, BackendSpec, EntryPoints, FakeHost, ModelSpec, PreferredGroup, abi,
    exported_entry_points,
};

static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// What the server told it.
struct Shared {
    greeting: Option<String>,
    models: Mutex<Vec<String>>,
}

impl Backend for Shared {
    fn initialize(cx: &BackendContext) -> Result<Self> {
        ALIVE.fetch_add(1, SeqCst);
        let shared = Self { greeting: cx.settings()?.remove("greeting"), models: Mutex::default() };
        match shared.greeting.as_deref() {
            Some("none") => {
                return Err(Error::invalid_arg("setting 'greeting' is 'none'; accepted is any other"));
            }
            Some("panic") => panic!("no greeting"),
            _ => cx.set_execution_policy(ExecutionPolicy::DeviceBlocking)?,
        }
        Ok(shared)
    }

    fn preferred_groups() -> Vec<InstanceGroup> {
        vec![
            InstanceGroup { kind: InstanceKind::Gpu, count: 2, device_ids: vec![0, 3] },
            InstanceGroup { count: 0, ..InstanceKind::Cpu.into() },
        ]
    }

    fn parallel_instance_loading() -> bool {
        true
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, SeqCst);
    }
}

struct Author(Arc<Shared>);

impl Model for Author {
    fn load(cx: &ModelContext) -> Result<Self> {
        let shared = cx.backend::<Shared>()?;
        shared.models.lock().unwrap().push(cx.name().to_owned());
        Ok(Self(shared))
    }
}

struct Runs;

impl Instance for Runs {
    type Model = Author;
    fn create(_: &Author, _: &InstanceContext) -> Result<Self> {
        Ok(Self)
    }
    fn infer(&mut self, _: &Author, _: &Request, _: &mut Reply) -> Result<()> {
        Ok(())
    }
}

impl ConcurrentInstance for Runs {
    type Model = Author;
    fn create(_: &Author, _: &InstanceContext) -> Result<Self> {
        Ok(Self)
    }
    fn start(&self, model: &Author, _: OwnedRequest, reply: OwnedReply) {
        reply.send(Err(Error::unavailable(format!("greeting {:?}", model.0.greeting))));
    }
}

export_backend!(Author, concurrent Runs, backend = Shared);

fn spec(settings: serde_json::Value) -> BackendSpec {
    BackendSpec { config: json!({"cmdline": settings}), ..BackendSpec::default() }
}

fn model(name: &str) -> ModelSpec {
    ModelSpec::new(name, json!({}))
}

#[test]
fn all_models_share_one_backend_that_goes_after_the_last_of_them() {
    let host = FakeHost::new();
    let (first, second) = {
        let backend =
            host.load_backend(exported_entry_points!(), spec(json!({"greeting": "hello"}))).unwrap();
        assert_eq!(ALIVE.load(SeqCst), 1);
        assert_eq!(backend.execution_policy(), Some(abi::TRITONBACKEND_EXECUTION_DEVICE_BLOCKING));
        let (a, b) = (backend.load(model("a")).unwrap(), backend.load(model("b")).unwrap());
        let answers = b.execute([triton_fake_host::TestRequest::new([])]).wait();
        assert!(answers[0].result().unwrap_err().message.contains(r#"greeting Some("hello")"#));
        drop((a, b));
        (ALIVE.load(SeqCst), backend)
    };
    assert_eq!(first, 1);
    drop(second);
    assert_eq!(ALIVE.load(SeqCst), 0);
    host.check();
}

#[test]
fn a_backend_that_does_not_initialize_is_freed_and_refuses_with_its_text() {
    let host = FakeHost::new();
    let entry_points = EntryPoints::with_backend::<Shared, Sequential<Runs>>();
    for (greeting, code, text) in [
        ("none", abi::TRITONSERVER_ERROR_INVALID_ARG, "setting 'greeting' is 'none'"),
        ("panic", abi::TRITONSERVER_ERROR_INTERNAL, "fault in initialize: no greeting"),
    ] {
        let refusal = host.load_backend(entry_points, spec(json!({"greeting": greeting}))).err().unwrap();
        assert_eq!(refusal.code, code);
        assert!(refusal.message.contains(text), "{refusal}");
        assert_eq!(ALIVE.load(SeqCst), 0);
    }
    host.fail_next("TRITONBACKEND_BackendSetState", 1);
    assert!(host.load_backend(entry_points, spec(json!({}))).is_err());
    assert_eq!(ALIVE.load(SeqCst), 0, "what the server does not take is dropped");
    host.check();
}

#[test]
fn the_instances_a_backend_prefers_and_how_they_may_be_made_are_told() {
    let host = FakeHost::new();
    let backend = host.load_backend(exported_entry_points!(), spec(json!({}))).unwrap();
    let group = |kind, count, device_ids| PreferredGroup { kind, count, device_ids };
    let wanted = BackendAttributes {
        groups: vec![
            group(abi::TRITONSERVER_INSTANCEGROUPKIND_GPU, 2, vec![0, 3]),
            group(abi::TRITONSERVER_INSTANCEGROUPKIND_CPU, 0, vec![]),
        ],
        parallel_instance_loading: true,
    };
    assert_eq!(backend.attributes(), Ok(wanted));
    drop(backend);
    host.check();
}

#[test]
fn a_model_of_another_backend_type_is_told_so() {
    let host = FakeHost::new();
    let entry_points = EntryPoints::with_backend::<(), Concurrent<Runs>>();
    let backend = host.load_backend(entry_points, BackendSpec::default()).unwrap();
    let refusal = backend.load(model("a")).err().unwrap();
    assert!(refusal.message.contains("model 'a'") && refusal.message.contains("Shared"), "{refusal}");
    drop(backend);
    host.check();
}

/// Notes everything that a backend can be told.
struct Curious;

type Told = (String, (u32, u32), BTreeMap<String, String>, Artifacts, ExecutionPolicy, serde_json::Value);
static TOLD: Mutex<Option<Told>> = Mutex::new(None);

impl Backend for Curious {
    fn initialize(cx: &BackendContext) -> Result<Self> {
        cx.memory()?.allocate(MemoryKind::Pinned, 8)?;
        let (settings, artifacts, policy) = (cx.settings()?, cx.artifacts()?, cx.execution_policy()?);
        let told = (cx.name().to_owned(), cx.api_version(), settings, artifacts, policy, cx.config()?);
        *TOLD.lock().unwrap() = Some(told);
        Ok(Self)
    }
}

#[test]
fn a_backend_is_told_its_name_settings_place_policy_and_the_servers_version() {
    let host = FakeHost::new();
    host.set_api_version(1, 19);
    let entry_points = EntryPoints::with_backend::<Curious, Sequential<Runs>>();
    let config = json!({"cmdline": {"default-max-batch-size": "4", "number": 3}, "unknown": {"kept": true}});
    let spec = BackendSpec { name: "curious".into(), config, ..BackendSpec::default() };
    drop(host.load_backend(entry_points, spec.clone()).unwrap());
    let (name, version, settings, artifacts, policy, config) = TOLD.lock().unwrap().take().unwrap();
    assert_eq!((name.as_str(), version, policy), ("curious", (1, 19), ExecutionPolicy::Blocking));
    let wanted =
        [("default-max-batch-size", "4"), ("number", "3")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(settings, BTreeMap::from(wanted));
    assert_eq!(artifacts, Artifacts::Folder("/backends/under_test".into()));
    assert_eq!(config["unknown"]["kept"], true, "what this crate does not know is kept");
    let spec = BackendSpec { artifact_type: 7, location: "elsewhere".into(), ..spec };
    drop(host.load_backend(entry_points, spec).unwrap());
    let artifacts = TOLD.lock().unwrap().take().unwrap().3;
    assert_eq!(artifacts, Artifacts::Unknown(7, "elsewhere".to_owned()), "rule 7");
    host.check();
}
