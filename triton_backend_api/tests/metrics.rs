//! Custom metrics: values, labels, names, and whose they are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

use serde_json::json;
use triton_backend_api::glue::Sequential;
use triton_backend_api::metrics::{Counter, Family, Gauge};
use triton_backend_api::*;
use triton_fake_host::{EntryPoints, FakeHost, ModelSpec, TestRequest, abi};

/// A model that counts its requests, under a name that all models of the backend share.
struct Counting {
    family: Family<Counter>,
    requests: Counter,
    loaded: Gauge,
}

impl Model for Counting {
    fn load(cx: &ModelContext) -> Result<Self> {
        let family = Family::counter("test_requests_total", "Requests by model")?;
        let requests = family.metric(&[("model", cx.name())])?;
        let loaded = Family::gauge("test_models", "Models loaded")?.metric(&[])?;
        loaded.add(1.0)?;
        Ok(Self { family, requests, loaded })
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.loaded.add(-1.0).unwrap();
    }
}

struct Instance {
    instance: Counter,
}

impl triton_backend_api::Instance for Instance {
    type Model = Counting;

    fn create(model: &Counting, cx: &InstanceContext) -> Result<Self> {
        Ok(Self { instance: model.family.metric(&[("instance", cx.name())])? })
    }

    fn infer(&mut self, model: &Counting, _: &Request, _: &mut Reply) -> Result<()> {
        self.instance.increment(1.0)?;
        model.requests.increment(1.0)
    }
}

#[test]
fn two_models_of_a_backend_register_the_same_family_and_each_lets_go_of_its_own_metrics() {
    let host = FakeHost::new();
    let entry_points = EntryPoints::of::<Sequential<Instance>>();
    let load = |name| host.load(entry_points, ModelSpec::new(name, json!({}))).unwrap();
    let (first, second) = (load("first"), load("second"));
    assert_eq!(host.calls()["TRITONSERVER_MetricFamilyNew"], 2, "one object for each name");
    assert_eq!(host.metric("test_models", &[]), Some(2.0));
    first.execute([TestRequest::new([]), TestRequest::new([])]).wait();
    second.execute([TestRequest::new([])]).wait();
    let served = |model| host.metric("test_requests_total", &[("model", model)]);
    assert_eq!((served("first"), served("second")), (Some(2.0), Some(1.0)));
    assert_eq!(host.metric("test_requests_total", &[("instance", "first_0")]), Some(2.0));
    first.unload();
    assert_eq!((served("first"), served("second")), (None, Some(1.0)));
    assert_eq!(host.metric("test_models", &[]), Some(1.0));
    second.execute([TestRequest::new([])]).wait();
    assert_eq!(served("second"), Some(2.0));
    second.unload();
    assert_eq!(host.metrics(), []);
    // Loaded again, the name is still the family's.
    load("first").execute([TestRequest::new([])]).wait();
    host.check();
}

#[test]
fn counters_gauges_and_histograms_hold_what_they_are_told() {
    let host = FakeHost::new();
    let counter =
        Family::counter("test_a", "A").unwrap().metric(&[("l", "x"), ("m", "y \" \u{e9}")]).unwrap();
    counter.increment(1.5).unwrap();
    counter.clone().increment(0.0).unwrap();
    assert_eq!(counter.value(), Ok(1.5));
    assert_eq!(host.metric("test_a", &[("m", "y \" \u{e9}"), ("l", "x")]), Some(1.5));
    let gauge = Family::gauge("test_b", "B").unwrap().metric(&[]).unwrap();
    gauge.set(4.0).unwrap();
    gauge.add(-1.0).unwrap();
    assert_eq!((gauge.value(), host.metric("test_b", &[])), (Ok(3.0), Some(3.0)));
    let family = Family::histogram("test_c", "C", &[0.5, 1.0]).unwrap();
    assert_eq!(family.name(), "test_c");
    let histogram = family.metric(&[]).unwrap();
    for value in [0.5, 0.75, 9.0] {
        histogram.observe(value).unwrap();
    }
    let served = host.metrics().into_iter().find(|metric| metric.name == "test_c").unwrap();
    assert_eq!((served.kind, served.help.as_str()), (abi::TRITONSERVER_METRIC_KIND_HISTOGRAM, "C"));
    assert_eq!((served.value, served.buckets), (10.25, vec![(0.5, 1), (1.0, 2), (f64::INFINITY, 3)]));
    drop((counter, gauge, family, histogram));
    host.check();
}

#[test]
fn wrong_values_labels_names_and_kinds_are_errors_that_name_them() {
    let host = FakeHost::new();
    #[track_caller]
    fn wrong<T>(result: Result<T>, wanted: &[&str]) {
        let e = result.err().expect("it should be refused");
        assert_eq!(e.code(), ErrorCode::InvalidArg, "{e}");
        assert!(wanted.iter().all(|text| e.message().contains(text)), "{e}");
    }
    wrong(Family::counter("2nd", "x"), &["'2nd'"]);
    wrong(Family::gauge("nv_gpu_utilization", "x"), &["'nv_gpu_utilization'", "the server's own"]);
    wrong(Family::counter("test_nul", "x\0y"), &["NUL"]);
    let family = Family::counter("test_a", "x").unwrap();
    wrong(Family::gauge("test_a", "x"), &["'test_a'", "is a counter already", "not a gauge"]);
    for label in ["", "1", "a-b", "__a", "a:b"] {
        wrong(family.metric(&[(label, "x")]), &["'test_a'", &format!("'{label}' is no name")]);
    }
    wrong(family.metric(&[("a", "x"), ("b", "y"), ("a", "z")]), &["'a' comes twice"]);
    wrong(family.metric(&[("a", "x\0")]), &["NUL"]);
    let counter = family.metric(&[("le", "x")]).unwrap();
    for value in [-1.0, f64::NAN, f64::INFINITY] {
        wrong(counter.increment(value), &["'test_a'", &value.to_string()]);
    }
    for bounds in [[1.0, 1.0], [2.0, 1.0], [0.0, f64::NAN], [0.0, f64::INFINITY]] {
        wrong(Family::histogram("test_h", "x", &bounds), &["'test_h'", &format!("{bounds:?}")]);
    }
    let histograms = Family::histogram("test_h", "x", &[1.0]).unwrap();
    wrong(Family::histogram("test_h", "x", &[2.0]), &["'test_h'", "[1.0] already", "[2.0]"]);
    wrong(histograms.metric(&[("le", "x")]), &["'le' is no name"]);
    wrong(histograms.metric(&[]).unwrap().observe(f64::NAN), &["'test_h'", "NaN"]);
    drop((counter, family, histograms));
    // What the server itself knows better, across backends and times.
    wrong(Family::gauge("test_a", "x"), &["metric family 'test_a', a gauge", "kind 0 already"]);
    host.check();
}

#[test]
fn metrics_go_before_their_family_in_whichever_order_their_handles_are_dropped() {
    let host = FakeHost::new();
    let family = Family::counter("test_order", "x").unwrap();
    let (one, same) = (family.metric(&[("a", "1")]).unwrap(), family.metric(&[("a", "1")]).unwrap());
    drop(family);
    one.increment(2.0).unwrap();
    drop(one);
    assert_eq!(same.value(), Ok(2.0), "the same metric, which its other handle keeps");
    assert!(!host.calls().contains_key("TRITONSERVER_MetricFamilyDelete"));
    drop(same);
    assert_eq!(host.calls()["TRITONSERVER_MetricFamilyDelete"], 1);
    host.check();
}

#[test]
fn metrics_may_be_made_used_and_dropped_on_any_thread() {
    let host = FakeHost::new();
    let family = Family::counter("test_threads", "x").unwrap();
    let kept = family.metric(&[("kept", "")]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let again = Family::counter("test_threads", "x").unwrap();
                    again.metric(&[("short", "")]).unwrap().increment(1.0).unwrap();
                    kept.increment(1.0).unwrap();
                }
            });
        }
    });
    assert_eq!(kept.value(), Ok(200.0));
    drop((family, kept));
    host.check();
}

#[test]
fn a_server_without_histograms_says_so_and_counters_go_on() {
    let host = FakeHost::new();
    host.without_younger_calls();
    let absent = Family::histogram("test_absent", "x", &[1.0]).err().unwrap();
    assert_eq!(absent.code(), ErrorCode::Unsupported);
    assert_eq!(
        absent.message(),
        "this server has no TRITONSERVER_MetricArgsNew: it came with server API 1.34"
    );
    assert!(!host.calls().contains_key("TRITONSERVER_MetricFamilyNew"), "the name is not taken in vain");
    Family::counter("test_absent", "x").unwrap().metric(&[]).unwrap().increment(1.0).unwrap();
    host.check();
}

#[test]
fn a_label_that_the_server_cannot_make_is_an_error_that_names_the_metric() {
    let host = FakeHost::new();
    let family = Family::counter("test_label", "x").unwrap();
    host.fail_next("TRITONSERVER_ParameterNew", 2);
    let wrong = family.metric(&[("a", "1"), ("b", "2")]).err().unwrap();
    assert!(wrong.message().contains("'test_label'"), "{wrong}");
    assert!(wrong.message().contains("the server made no parameter"), "{wrong}");
    drop(family);
    host.check();
}
