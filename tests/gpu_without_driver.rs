//! A GPU instance on a machine without an NVIDIA driver. A test executable of its own: here no driver is emulated.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests

use serde_json::json;
use triton_fake_host::{FakeHost, ModelSpec, abi, exported_entry_points};
use triton_spleenseg as _; // its entry points

#[test]
fn a_gpu_instance_is_refused_in_one_line() {
    let host = FakeHost::new();
    let config = json!({
        "max_batch_size": 1,
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1, -1, -1]}],
        "output": [{"name": "MASK", "data_type": "TYPE_FP32", "dims": [1, 224, 224, 224]}],
    });
    let mut spec = ModelSpec::new("spleen_seg", config);
    spec.instances = vec![(abi::TRITONSERVER_INSTANCEGROUPKIND_GPU, 0)];
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
