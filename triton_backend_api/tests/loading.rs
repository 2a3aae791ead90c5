//! Loading: the version handshake, configuration, state, and what is left after a failure.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::*;
use serde_json::json;
use std::sync::{Arc, Mutex};
use triton_backend_api::*;

#[test]
fn an_older_minor_or_another_major_version_is_refused() {
    let host = FakeHost::new();
    let (major, minor) = (abi::TRITON_ABI_BACKEND_MAJOR, abi::TRITON_ABI_BACKEND_MINOR);
    let entry_points = Way::Waiting.entry_points();
    for (major, minor) in [(major, minor), (major, minor + 1), (major, minor + 100)] {
        host.set_api_version(major, minor);
        assert_eq!(host.initialize(&entry_points), Ok(()));
    }
    for (server_major, server_minor) in [(major, minor - 1), (major, 0), (major - 1, 99), (major + 1, minor)]
    {
        host.set_api_version(server_major, server_minor);
        let refusal = host.initialize(&entry_points).unwrap_err();
        assert_eq!(refusal.code, abi::TRITONSERVER_ERROR_UNSUPPORTED);
        let (found, accepted) = (format!("{server_major}.{server_minor}"), format!("{major}.{minor}"));
        assert!(refusal.message.contains("backend 'under_test'"), "{refusal}");
        assert!(refusal.message.contains(&found) && refusal.message.contains(&accepted), "{refusal}");
    }
    host.check();
}

#[test]
fn the_kinds_of_instance_that_the_author_prefers_are_told() {
    let host = FakeHost::new();
    let kinds = host.backend_attributes(&Way::Waiting.entry_points());
    let (cpu, gpu) = (abi::TRITONSERVER_INSTANCEGROUPKIND_CPU, abi::TRITONSERVER_INSTANCEGROUPKIND_GPU);
    assert_eq!(kinds, Ok(vec![gpu, cpu]));
    host.check();
}

#[test]
fn the_model_and_its_instances_are_told_what_they_are() {
    both_ways(|host, way| {
        let instances = Arc::new(Mutex::new(Vec::new()));
        let told = instances.clone();
        let mut script = Script::new(echo);
        script.load = Arc::new(|cx| {
            assert_eq!((cx.name(), cx.version()), ("under_test", 7));
            assert_eq!(cx.repository().to_str(), Some("/models/under_test"));
            assert_eq!(cx.version_directory().to_str(), Some("/models/under_test/7"));
            assert_eq!(cx.config().max_batch_size(), 8);
            assert_eq!(cx.config().inputs()?[0].name, "INPUT0");
            Ok(())
        });
        script.create = Arc::new(move |cx| {
            told.lock().unwrap().push((cx.name().to_owned(), cx.kind(), cx.device_id()));
            Ok(())
        });
        let spec = |spec: &mut ModelSpec| {
            spec.version = 7;
            spec.instances = vec![(1, 0), (2, 3), (3, -1), (99, 0)];
        };
        let model = way.try_load(host, &script, spec).unwrap();
        assert_eq!(model.ready(), Ok(()));
        model.unload();
        script.assert_freed();
        use InstanceKind::*;
        let wanted = [(Cpu, 0), (Gpu, 3), (Model, -1), (Unknown(99), 0)];
        let instances = instances.lock().unwrap();
        let found = instances.iter().map(|(_, kind, device)| (*kind, *device));
        assert!(found.eq(wanted), "rule 7: {instances:?}");
        assert_eq!(instances[3].0, "under_test_3");
    });
}

#[test]
fn auto_complete_sets_the_configuration_before_the_load() {
    both_ways(|host, way| {
        let mut script = Script::new(echo);
        script.complete = Arc::new(|config| {
            let mut completed = config.json().clone();
            completed["output"] = json!([{"name": "MADE", "data_type": "TYPE_INT64", "dims": ["-1"]}]);
            Ok(Some(completed))
        });
        script.load = Arc::new(|cx| {
            assert_eq!(cx.config().outputs()?[0].data_type, DataType::Int64);
            Ok(())
        });
        let model = way.load(host, &script);
        assert_eq!(model.config()["output"][0]["name"], "MADE");
    });
}

#[test]
fn auto_complete_is_not_asked_where_it_is_off_or_has_nothing_to_say() {
    both_ways(|host, way| {
        let mut script = Script::new(echo);
        script.complete = Arc::new(|_| panic!("nobody asked"));
        let off = |spec: &mut ModelSpec| spec.auto_complete = false;
        assert!(way.try_load(host, &script, off).is_ok());
        script.complete = Arc::new(|_| Ok(None));
        let model = way.load(host, &script);
        assert_eq!(model.config()["output"][0]["name"], "OUTPUT0");
        assert_eq!(host.calls().get("TRITONBACKEND_ModelSetConfig"), None);
    });
}

#[test]
fn a_refused_load_tells_why_and_frees_everything() {
    both_ways(|host, way| {
        let refuse = || Err(Error::invalid_arg("parameter 'margin' is 'x'; an integer is accepted"));
        let mut load = Script::new(echo);
        load.load = Arc::new(move |_| refuse());
        let mut create = Script::new(echo);
        create.create = Arc::new(move |_| refuse());
        let mut complete = Script::new(echo);
        complete.complete = Arc::new(move |_| refuse().map(|()| None));
        for script in [load, create, complete] {
            let refusal = way.try_load(host, &script, |_| ()).err().unwrap();
            assert_eq!(refusal.code, abi::TRITONSERVER_ERROR_INVALID_ARG);
            assert!(refusal.message.contains("'margin' is 'x'"), "{refusal}");
            script.assert_freed();
        }
    });
}

#[test]
fn a_later_instance_that_fails_takes_the_earlier_ones_along() {
    both_ways(|host, way| {
        let dropped = Arc::new(Mutex::new(Vec::new()));
        let note = dropped.clone();
        let mut script = Script::new(echo);
        script.create = Arc::new(|cx| match cx.name() {
            "under_test_2" => Err(Error::unavailable("no third")),
            _ => Ok(()),
        });
        script.dropped = Arc::new(move |what| note.lock().unwrap().push(what.to_owned()));
        let three = |spec: &mut ModelSpec| spec.instances = vec![(1, 0); 3];
        assert_eq!(way.try_load(host, &script, three).err().unwrap().message, "no third");
        assert_eq!(*dropped.lock().unwrap(), ["instance", "instance", "model"]);
        script.assert_freed();
    });
}

#[test]
fn rule_7_a_model_from_an_unknown_kind_of_place_is_refused() {
    both_ways(|host, way| {
        let spec = |spec: &mut ModelSpec| spec.artifact_type = 5;
        let refusal = way.try_load(host, &Script::new(echo), spec).err().unwrap();
        assert_eq!(refusal.code, abi::TRITONSERVER_ERROR_UNSUPPORTED);
        assert!(refusal.message.contains("artifact type 5"), "{refusal}");
    });
}

#[test]
fn instances_without_state_are_errors_not_crashes() {
    both_ways(|host, way| {
        let spec = |spec: &mut ModelSpec| spec.instances.clear();
        let model = way.try_load(host, &Script::new(echo), spec).unwrap();
        // A model without instances: the pointer that is passed is none of the server's.
        assert!(model.ready().is_err());
        assert!(model.execute([]).result.is_err());
        assert!(!host.violations().is_empty(), "the ledger knows that pointer was nothing");
        drop(model);
    });
}

#[test]
fn the_log_is_asked_before_it_is_written_to() {
    let host = FakeHost::new();
    host.silence(abi::TRITONSERVER_LOG_VERBOSE);
    assert!(!log::enabled(log::Level::Verbose) && log::enabled(log::Level::Warn));
    let formatted = std::cell::Cell::new(0);
    let count = || formatted.replace(formatted.get() + 1);
    triton_backend_api::log!(Verbose, "not written {}", count());
    triton_backend_api::log!(Warn, "written {}\0{}", count(), "twice");
    assert_eq!(formatted.get(), 1, "only what is written is formatted");
    let lines = host.log();
    assert_eq!(lines.len(), 1);
    assert_eq!((lines[0].level, lines[0].file.as_str()), (abi::TRITONSERVER_LOG_WARN, "loading.rs"));
    assert_eq!(lines[0].message, "written 0 twice");
    host.fail_next("TRITONSERVER_LogMessage", 1);
    triton_backend_api::log!(Error, "lost");
    assert_eq!(host.log().len(), 1);
    host.check();
}
