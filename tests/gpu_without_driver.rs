//! A GPU instance, and memory of a GPU, on a machine without an NVIDIA driver. A test executable of its own: here no driver is emulated.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests

use serde_json::json;
use triton_fake_host::{FakeHost, ModelSpec, TestInput, TestRequest, abi, exported_entry_points};
use triton_spleenseg as _; // its entry points

fn spec(kind: u32) -> ModelSpec {
    let config = json!({
        "max_batch_size": 1,
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1, -1, -1]}],
        "output": [{"name": "MASK", "data_type": "TYPE_FP32", "dims": [1, 224, 224, 224]}],
    });
    let mut spec = ModelSpec::new("spleen_seg", config);
    spec.instances = vec![(kind, 0)];
    spec
}

#[test]
fn a_gpu_instance_is_refused_in_one_line() {
    let host = FakeHost::new();
    let spec = spec(abi::TRITONSERVER_INSTANCEGROUPKIND_GPU);
    match host.load(exported_entry_points!(), spec).map(drop) {
        Err(error) => {
            assert_eq!(error.code, abi::TRITONSERVER_ERROR_UNSUPPORTED, "{error}");
            // A machine may have the library without a GPU.
            let expected = "instance 'spleen_seg_0' is KIND_GPU: no usable NVIDIA driver: ";
            assert!(error.message.starts_with(expected), "{error}");
            assert!(!error.message.contains('\n'), "{error}");
        }
        Ok(()) => assert!(std::path::Path::new("/dev/nvidiactl").exists(), "it loaded without a GPU"),
    }
    host.check();
}

#[test]
fn memory_of_a_gpu_is_refused_by_a_cpu_instance_in_one_line() {
    let host = FakeHost::new();
    let model = host.load(exported_entry_points!(), spec(abi::TRITONSERVER_INSTANCEGROUPKIND_CPU)).unwrap();
    // No GPU is so far up, wherever the test runs.
    let input = TestInput::fp32("INPUT0", &[1, 2, 2, 2], &[0.0; 8]).memory(abi::TRITONSERVER_MEMORY_GPU, 99);
    let error = model.execute([TestRequest::new([input])]).wait().remove(0).result().unwrap_err();
    assert_eq!(error.code, abi::TRITONSERVER_ERROR_UNSUPPORTED, "{error}");
    let expected = "input 'INPUT0' lies in memory of GPU 99 and cannot be copied to the host: ";
    assert!(error.message.starts_with(expected), "{error}");
    if !std::path::Path::new("/dev/nvidiactl").exists() {
        assert!(error.message.contains("no usable NVIDIA driver: "), "{error}");
    }
    assert!(!error.message.contains('\n'), "{error}");
    model.unload();
    host.check();
}
