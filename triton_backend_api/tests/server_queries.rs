//! What instances and requests can ask the server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::*;
use serde_json::json;
use std::sync::{Arc, Mutex};
use triton_backend_api::*;

#[test]
fn an_instance_is_told_its_policy_profiles_and_secondary_devices() {
    both_ways(|host, way| {
        host.set_host_policy("gpu_2", json!({"numa-node": "1", "cpu-cores": 4}));
        let told = Arc::new(Mutex::new(Vec::new()));
        let note = told.clone();
        let mut script = Script::new(echo);
        script.create = Arc::new(move |cx| {
            let all = (cx.host_policy()?, cx.profiles()?, cx.secondary_devices()?, cx.is_passive()?);
            note.lock().unwrap().push(all);
            Ok(())
        });
        let spec = |spec: &mut ModelSpec| {
            spec.instances = vec![(2, 2), (1, 0)];
            spec.config["instance_group"] = json!([{"profile": ["0", "max"], "passive": true,
                "secondary_devices": [{"kind": "KIND_NVDLA", "device_id": 1}, {"kind": "KIND_NEW", "device_id": 0}]}]);
        };
        way.try_load(host, &script, spec).unwrap().unload();
        let told = told.lock().unwrap();
        let (policy, profiles, devices, passive) = &told[0];
        assert_eq!(policy.name, "gpu_2");
        let settings: Vec<_> =
            policy.settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(settings, [("cpu-cores", "4"), ("numa-node", "1")]);
        let device = |kind: &str, id| SecondaryDevice { kind: kind.to_owned(), id };
        assert_eq!(*devices, [device("KIND_NVDLA", 1), device("KIND_NEW", 0)], "an unknown kind is kept");
        assert_eq!((profiles.as_slice(), *passive), (&["0".to_owned(), "max".to_owned()][..], true));
        assert_eq!((told[1].0.name.as_str(), told[1].0.settings.len()), ("cpu", 0));
    });
}

#[test]
fn the_server_says_what_it_and_its_models_are_and_did() {
    both_ways(|host, way| {
        host.child("child", |call| call.finish());
        let script = Script::new(|author, request, reply| {
            let server = &author.server;
            assert_eq!((server.is_live(), server.is_ready()), (Ok(true), Ok(true)));
            assert_eq!(server.metadata()?["name"], "fake_host");
            assert_eq!(
                (server.model_is_ready("child", -1), server.model_is_ready("none", -1)),
                (Ok(true), Ok(false))
            );
            assert_eq!(server.model_metadata("child", -1)?["versions"], json!(["1"]));
            let own = server.model_metadata("under_test", 1)?;
            assert_eq!(own["inputs"][0]["name"], "INPUT0");
            assert_eq!(server.model_statistics("child", 1)?["model_stats"][0]["name"], "child");
            assert_eq!(server.model_config("under_test", -1)?.max_batch_size(), 8);
            assert_eq!(server.model_index(false)?.as_array().unwrap().len(), 2);
            assert_eq!(
                server.model_index(true)?,
                json!([{"name": "child", "version": "1", "state": "READY"}])
            );
            for result in [
                server.model_metadata("none", -1).err(),
                server.model_statistics("none", -1).err(),
                server.model_config("none", -1).err(),
                server.model_config("under_test", 2).err(),
            ] {
                let wrong = result.expect("there is no such model");
                assert_eq!(wrong.code(), ErrorCode::NotFound, "{wrong}");
            }
            assert!(server.model_config("a\0b", -1).err().unwrap().message().contains("NUL"));
            echo(author, request, reply)
        });
        let model = way.load(host, &script);
        let answers = model.execute([request(&[1.0])]).wait();
        assert_eq!(answers[0].bytes("OUTPUT0"), Some(bytes(&[1.0])), "{:?}", answers[0]);
        model.unload();
    });
}

#[test]
fn a_server_that_is_not_ready_says_so() {
    both_ways(|host, way| {
        let script = Script::new(|author, _, _| {
            assert_eq!((author.server.is_live(), author.server.is_ready()), (Ok(true), Ok(false)));
            Ok(())
        });
        let model = way.load(host, &script);
        host.set_health(true, false);
        assert!(model.execute([request(&[1.0])]).wait()[0].result().is_ok());
    });
}
