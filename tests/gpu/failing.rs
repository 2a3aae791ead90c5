//! What fails fails its own request; what a context does not recover from ends the instance.

use triton_fake_host::{TestRequest, abi::*};

use crate::common::*;

/// The calls of a load and a request that can fail. What gives things back is not among them: where it fails they are lost.
const CALLS: [&str; 20] = [
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuStreamCreate",
    "cuMemAlloc_v2",
    "cuMemHostAlloc",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyPeerAsync",
    "cuMemsetD8Async",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuEventElapsedTime",
    "cuLaunchKernel",
];

/// A request that makes as many different calls as one can.
fn everything() -> TestRequest {
    let (gpu, host) = (GPU_1, HOST);
    TestRequest::new([input([1, 5, 9, 33], 1).memory(gpu.0, gpu.1)])
        .output_memory("MASK", host.0, host.1)
        .output_memory("CONTOUR", gpu.0, gpu.1)
}

/// And one for those that are left: from the host, and to the GPU at an address that no kernel can write to.
fn the_rest() -> TestRequest {
    request(2).output_memory("MASK", GPU_0.0, GPU_0.1).output_misaligned("MASK", 2)
}

#[test]
fn any_call_may_fail_at_any_time_and_the_next_request_works() {
    let clean = Server::new(GPU_0);
    let model = clean.load(GPU_KIND).unwrap();
    let expected = outputs(&one(&model, everything()));
    outputs(&one(&model, the_rest()));
    let counts = CALLS.map(|call| clean.driver.calls(call));
    model.unload();
    clean.check();
    for (call, count) in CALLS.into_iter().zip(counts) {
        assert!(count > 0, "{call} is never called");
        // The first and the last time, and one or two between.
        for after in (0..count).step_by(count.div_ceil(3)).chain((count > 1).then(|| count - 1)) {
            let server = Server::new(GPU_0);
            server.driver.fail(call, after, 1, 1);
            if let Ok(model) = server.load(GPU_KIND) {
                for request in [everything(), the_rest()] {
                    if let Err(error) = one(&model, request).result() {
                        assert!(
                            error.message.contains("CUDA_ERROR_INVALID_VALUE, invalid argument"),
                            "{error}"
                        );
                        assert!(error.message.contains(call), "{call}: {error}");
                    }
                }
                server.driver.heal();
                assert!(outputs(&one(&model, everything())) == expected, "after {call}, time {after}");
                assert_eq!(model.ready(), Ok(()));
                model.unload();
            }
            server.check();
        }
    }
}

#[test]
fn out_of_memory_fails_that_request_with_what_was_wanted_and_what_is_free() {
    let server = Server::new(HOST);
    server.driver.device(0, 86, 1 << 20);
    let model = server.load(GPU_KIND).unwrap();
    outputs(&one(&model, request(1)));
    let large = TestRequest::new([input([1, 64, 64, 65], 2)]);
    let error = one(&model, large).result().unwrap_err();
    assert_eq!(error.code, TRITONSERVER_ERROR_UNAVAILABLE);
    let wanted = 64 * 64 * 65 * 4;
    assert!(
        error.message.contains(&format!("out of GPU memory: {wanted} bytes wanted, 1048576 bytes free")),
        "{error}"
    );
    outputs(&one(&model, request(1)));
    model.unload();
    server.check();
}

#[test]
fn what_the_pool_keeps_is_given_back_before_memory_runs_out() {
    let server = Server::new(HOST);
    server.driver.device(0, 86, 220 << 10);
    let model = server.load(GPU_KIND).unwrap();
    // Each fits alone, and not beside what the other leaves behind.
    for depth in [60, 100, 60, 100] {
        outputs(&one(&model, TestRequest::new([input([1, 20, 20, depth], 3)])));
    }
    model.unload();
    server.check();
}

#[test]
fn what_other_instances_keep_is_given_back_too() {
    let server = Server::new(HOST);
    server.driver.device(0, 86, 300 << 10);
    server.driver.device(1, 86, 300 << 10);
    // Two of one model and one of another, on one GPU; what the one on another GPU keeps is of no use.
    let mut two = spec(config("TYPE_FP32", serde_json::json!({})));
    two.instances = vec![GPU_KIND, GPU_KIND];
    let models = [server.load_spec(two).unwrap(), server.load(GPU_KIND).unwrap()];
    let elsewhere = server.load((GPU_KIND.0, 1)).unwrap();
    let sized = |depth| TestRequest::new([input([1, 20, 20, depth], 3)]);
    outputs(&one(&elsewhere, sized(60)));
    let kept = server.driver.used(1);
    assert!(kept > 0);
    for depth in [60, 100] {
        for (model, instance) in [(0, 0), (0, 1), (1, 0)] {
            outputs(&models[model].execute_on(instance, [sized(depth)]).wait().remove(0));
        }
    }
    assert_eq!(server.driver.used(1), kept);
    for model in models.into_iter().chain([elsewhere]) {
        model.unload();
    }
    server.check();
}

#[test]
fn a_context_that_cannot_be_entered_is_left() {
    let server = Server::new(HOST);
    server.driver.fail("cuThreadExchangeStreamCaptureMode", 0, 1, 1);
    let Err(error) = server.load(GPU_KIND) else { panic!("it was entered") };
    assert!(error.message.contains("entering the context: cuThreadExchangeStreamCaptureMode"), "{error}");
    server.load(GPU_KIND).unwrap().unload();
    server.check();
}

#[test]
fn pinned_memory_that_runs_out_is_said_to_be_that() {
    let server = Server::new(HOST);
    let model = server.load(GPU_KIND).unwrap();
    server.driver.fail("cuMemHostAlloc", 0, 2, 2);
    let error = one(&model, request(1)).result().unwrap_err();
    assert!(error.message.contains("out of pinned host memory"), "{error}");
    outputs(&one(&model, request(1)));
    model.unload();
    server.check();
}

#[test]
fn a_sticky_error_ends_the_instance_with_one_line() {
    let faults = [
        ("run argmax_fp32", 700),
        ("run foreground_fp32", 719),
        ("cuEventSynchronize", 214),
        ("run contour_mask", 226), // younger than the bindings
    ];
    for (fault, code) in faults {
        let server = Server::new(GPU_0);
        let model = server.load(GPU_KIND).unwrap();
        outputs(&one(&model, request(1)));
        server.driver.fail(fault, 0, 1, code);
        let first = one(&model, request(1)).result().unwrap_err();
        assert_eq!(first.code, TRITONSERVER_ERROR_INTERNAL, "{first}");
        for _ in 0..3 {
            let error = one(&model, request(1)).result().unwrap_err();
            assert_eq!(error.code, TRITONSERVER_ERROR_UNAVAILABLE);
            assert!(error.message.starts_with("the instance needs a reload: "), "{error}");
        }
        assert!(model.ready().unwrap_err().message.contains("needs a reload"));
        let lines: Vec<_> = server
            .host
            .log()
            .into_iter()
            .filter(|line| line.level == TRITONSERVER_LOG_ERROR && line.message.contains("needs a reload"))
            .collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        model.unload();
        server.check();
    }
}

#[test]
fn an_error_without_words_is_its_number() {
    let server = Server::new(HOST);
    let model = server.load(GPU_KIND).unwrap();
    server.driver.fail("cuLaunchKernel", 0, 1, 987_654);
    let error = one(&model, request(1)).result().unwrap_err();
    assert!(error.message.contains("cuLaunchKernel failed: CUDA error 987654"), "{error}");
    model.unload();
    server.check();
}
