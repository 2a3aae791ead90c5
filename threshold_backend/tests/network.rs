//! The network on the fake host and the emulated driver.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

use std::path::Path;

use fake_driver::FakeDriver;
use serde_json::{Value, json};
use triton_fake_host::{
    Answer, FakeHost, GpuMemory, LoadedModel, ModelSpec, TestInput, TestRequest, abi::*,
    exported_entry_points,
};
use triton_threshold as _; // its entry points

const HOST: (u32, i64) = (TRITONSERVER_MEMORY_CPU, 0);
const GPU_0: (u32, i64) = (TRITONSERVER_MEMORY_GPU, 0);
const GPU_1: (u32, i64) = (TRITONSERVER_MEMORY_GPU, 1);
const VALUES: [f32; 8] = [0.0, 0.25, 0.5, 0.75, 1.0, f32::INFINITY, -3.0, 2.0];
/// Of two volumes, one after the other.
const SCORES: [f32; 16] = [
    0.5,
    0.25,
    0.0,
    -0.25,
    -0.5,
    -0.25,
    0.0,
    0.25,
    -0.5,
    f32::NEG_INFINITY,
    3.5,
    -1.5,
    0.5,
    f32::INFINITY,
    -3.5,
    1.5,
];

fn server() -> (FakeHost, FakeDriver) {
    let driver = FakeDriver::new(2);
    let host = FakeHost::new();
    host.use_gpu_memory(GpuMemory {
        allocate: |device, byte_size| fake_driver::allocate(device as i32, byte_size),
        free: fake_driver::free,
        read: |base, bytes| bytes.copy_from_slice(&fake_driver::read(base, bytes.len())),
        write: fake_driver::write,
    });
    host.set_gpus(2);
    (host, driver)
}

fn load(host: &FakeHost, gpu: Option<i32>, parameters: Value) -> LoadedModel<'_> {
    let config = json!({
        "max_batch_size": 2,
        "input": [{"name": "INPUT__0", "data_type": "TYPE_FP32", "dims": [1, -1, -1, -1]}],
        "output": [{"name": "OUTPUT__0", "data_type": "TYPE_FP32", "dims": [2, -1, -1, -1]}],
        "parameters": parameters,
    });
    let mut spec = ModelSpec::new("network", config);
    spec.instances = vec![match gpu {
        Some(id) => (TRITONSERVER_INSTANCEGROUPKIND_GPU, id),
        None => (TRITONSERVER_INSTANCEGROUPKIND_CPU, 0),
    }];
    host.load(exported_entry_points!(), spec).unwrap()
}

fn one(model: &LoadedModel<'_>, request: TestRequest) -> Answer {
    model.execute([request]).wait().remove(0)
}

fn input() -> TestInput {
    TestInput::fp32("INPUT__0", &[2, 1, 1, 2, 2], &VALUES)
}

#[track_caller]
fn check_scores(answer: &Answer, what: &str) {
    answer.result().unwrap_or_else(|e| panic!("{what}: {e}"));
    let bytes: Vec<u8> = SCORES.iter().flat_map(|score| score.to_ne_bytes()).collect();
    assert!(answer.bytes("OUTPUT__0").unwrap() == bytes, "{what}");
}

#[test]
fn on_the_host_no_driver_is_called() {
    let (host, driver) = server();
    let model = load(&host, None, json!({}));
    check_scores(&one(&model, TestRequest::new([input().split(&[5, 18])])), "host");
    assert_eq!(driver.calls("cuInit"), 0);
    model.unload();
    host.check();
    driver.check();
}

#[test]
fn memory_of_any_gpu_is_read_and_written() {
    let (host, driver) = server();
    for gpu in [None, Some(0), Some(1)] {
        let model = load(&host, gpu, json!({}));
        for from in [HOST, GPU_0, GPU_1] {
            for to in [HOST, GPU_0, GPU_1] {
                let request = TestRequest::new([input().memory(from.0, from.1).split(&[6])]).output_memory(
                    "OUTPUT__0",
                    to.0,
                    to.1,
                );
                check_scores(&one(&model, request), &format!("{gpu:?} {from:?} {to:?}"));
            }
        }
        model.unload();
    }
    host.check();
    driver.check();
}

#[test]
fn an_instance_on_a_gpu_leaves_its_output_there() {
    for (gpu, copies) in [(None, 0), (Some(1), 1)] {
        let (host, driver) = server();
        let model = load(&host, gpu, json!({}));
        check_scores(&one(&model, TestRequest::new([input()])), "output where the network wants it");
        assert_eq!(driver.calls("cuMemcpyHtoDAsync_v2"), copies, "{gpu:?}");
        assert_eq!(driver.calls("cuDevicePrimaryCtxRetain"), copies, "{gpu:?}");
        model.unload();
        host.check();
        driver.check();
    }
}

#[test]
fn what_it_is_given_is_written_to_a_file() {
    let (host, driver) = server();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("given");
    let model = load(&host, Some(0), json!({"write_to": {"string_value": path.to_str()}}));
    for memory in [GPU_0, HOST] {
        check_scores(&one(&model, TestRequest::new([input().memory(memory.0, memory.1)])), "with a file");
        let bytes: Vec<u8> = VALUES.iter().flat_map(|value| value.to_ne_bytes()).collect();
        assert!(std::fs::read(&path).unwrap() == bytes);
        std::fs::remove_file(&path).unwrap();
    }
    model.unload();
    host.check();
    driver.check();
}

#[test]
fn another_shape_or_a_failing_call_fails_that_request_alone() {
    let (host, driver) = server();
    let model = load(&host, Some(0), json!({}));
    let wrong = TestRequest::new([TestInput::fp32("INPUT__0", &[1, 2, 1, 2, 2], &VALUES)]);
    let error = one(&model, wrong).result().unwrap_err();
    assert!(error.message.contains("accepted is one channel"), "{error}");
    for call in ["cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2"] {
        driver.fail(call, 0, 1, 1);
        let error = one(&model, TestRequest::new([input().memory(GPU_0.0, GPU_0.1)])).result().unwrap_err();
        assert!(error.message.contains(call), "{error}");
        check_scores(&one(&model, TestRequest::new([input()])), call);
    }
    model.unload();
    host.check();
    driver.check();
}
