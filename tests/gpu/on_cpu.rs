//! Instances on the CPU whose clients lay tensors in memory of GPUs: they are copied, and the results are the same.

use serde_json::json;
use triton_fake_host::{TestRequest, abi::*};

use crate::common::*;

/// The calls that can fail of an instance on the CPU. What gives things back is not among them: where it fails they are lost.
const CALLS: [&str; 12] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent_v2",
    "cuStreamCreate",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventSynchronize",
];

/// INPUT0 in pieces on two GPUs, MASK on one of them, CONTOUR on the other.
fn everything() -> TestRequest {
    TestRequest::new([input([1, 11, 9, 33], 1).split(&[1002, 1003, 5000]).memories(&[GPU_0, GPU_1])])
        .output_memory("MASK", GPU_0.0, GPU_0.1)
        .output_memory("CONTOUR", GPU_1.0, GPU_1.1)
}

#[test]
fn inputs_are_copied_from_wherever_they_lie() {
    let shape = [1, 11, 9, 33];
    let expected = expected(TestRequest::new([input(shape, 1)]));
    let server = Server::new(HOST);
    let model = server.load(CPU_KIND).unwrap();
    for memories in [&[GPU_0][..], &[GPU_1], &[PINNED], &[HOST, GPU_0, GPU_1, PINNED], &[GPU_1, GPU_0]] {
        for misalign in [0, 2] {
            for cuts in [&[][..], &[1002, 1003, 5000]] {
                let input = input(shape, 1).memories(memories).misaligned(misalign).split(cuts);
                let found = outputs(&one(&model, TestRequest::new([input])));
                assert!(found == expected, "{memories:?} {misalign} {cuts:?}");
            }
        }
    }
    model.unload();
    server.check();
}

#[test]
fn outputs_are_copied_where_the_client_wants_them() {
    for data_type in ["TYPE_FP32", "TYPE_FP16", "TYPE_UINT8", "TYPE_INT32", "TYPE_INT64", "TYPE_BOOL"] {
        let request = || TestRequest::new([input([3, 5, 9, 33], 4)]);
        let server = Server::new(HOST);
        let model = server.load_with(CPU_KIND, data_type, json!({})).unwrap();
        let expected = outputs(&one(&model, request()));
        assert_eq!(server.driver.calls("cuInit"), 0, "nothing lies on a GPU so far");
        for mask in [HOST, PINNED, GPU_0, GPU_1] {
            for contour in [HOST, GPU_0] {
                for misalign in [0, 2] {
                    let request = request()
                        .output_memory("MASK", mask.0, mask.1)
                        .output_memory("CONTOUR", contour.0, contour.1)
                        .output_misaligned("MASK", misalign);
                    let found = outputs(&one(&model, request));
                    assert!(found == expected, "{data_type} {mask:?} {contour:?} {misalign}");
                }
            }
        }
        model.unload();
        server.check();
    }
}

#[test]
fn a_network_that_prefers_a_gpu_answers_to_the_host() {
    let expected = expected(request(1));
    for network in [GPU_0, GPU_1] {
        let server = Server::new(network);
        let model = server.load(CPU_KIND).unwrap();
        assert!(outputs(&one(&model, everything())) == expected, "{network:?}");
        model.unload();
        server.check();
    }
}

#[test]
fn outputs_on_the_scans_own_grid() {
    let names = ["MASK_NATIVE", "CONTOUR_NATIVE"];
    let server = Server::new(HOST);
    let model = server.load_config(CPU_KIND, native_config("TYPE_UINT8", json!({}))).unwrap();
    let bytes = |request| {
        let answer = one(&model, request);
        names.map(|name| answer.bytes(name).unwrap_or_else(|| panic!("{name}: {:?}", answer.result())))
    };
    let expected = bytes(request(2));
    let on_gpus =
        request(2).output_memory(names[0], GPU_0.0, GPU_0.1).output_memory(names[1], GPU_1.0, GPU_1.1);
    assert!(bytes(on_gpus) == expected);
    model.unload();
    server.check();
}

#[test]
fn each_gpu_is_opened_once_and_only_for_what_lies_there() {
    let server = Server::new(HOST);
    let model = server.load(CPU_KIND).unwrap();
    let opened = || ["cuDevicePrimaryCtxRetain", "cuStreamCreate"].map(|call| server.driver.calls(call));
    outputs(&one(&model, request(1)));
    assert_eq!(opened(), [0, 0]);
    for _ in 0..2 {
        outputs(&one(&model, request(1).output_memory("MASK", GPU_1.0, GPU_1.1)));
        assert_eq!(opened(), [1, 1]);
    }
    for _ in 0..2 {
        outputs(&one(&model, everything()));
        assert_eq!(opened(), [2, 2]);
    }
    assert_eq!(server.driver.calls("cuMemAlloc_v2") + server.driver.calls("cuModuleLoadData"), 0);
    model.unload();
    server.check();
}

#[test]
fn requests_in_flight_together_do_not_meet() {
    check_requests_in_flight(CPU_KIND, HOST, |seed| {
        let memory = [GPU_0, GPU_1][seed as usize % 2];
        TestRequest::new([input([1, 11, 9, 33], seed).memory(memory.0, memory.1)])
            .output_memory("MASK", GPU_0.0, GPU_0.1)
    });
}

#[test]
fn any_call_may_fail_at_any_time_and_the_next_request_works() {
    let clean = Server::new(HOST);
    let model = clean.load(CPU_KIND).unwrap();
    let expected = outputs(&one(&model, everything()));
    let counts = CALLS.map(|call| clean.driver.calls(call));
    model.unload();
    clean.check();
    for (call, count) in CALLS.into_iter().zip(counts) {
        assert!(count > 0, "{call} is never called");
        for after in 0..count {
            let server = Server::new(HOST);
            let model = server.load(CPU_KIND).unwrap();
            server.driver.fail(call, after, 1, 1);
            let error = one(&model, everything()).result().unwrap_err();
            let message = &error.message;
            assert!(message.contains(call), "{call}, time {after}: {message}");
            assert!(message.contains("CUDA_ERROR_INVALID_VALUE, invalid argument"), "{message}");
            let tensor = ["input 'INPUT0'", "output 'MASK'", "output 'CONTOUR'"];
            assert!(tensor.iter().any(|tensor| message.starts_with(tensor)), "{message}");
            assert!(message.contains("lies in memory of GPU "), "{message}");
            let copying = call.starts_with("cuMemcpy") || call.starts_with("cuEvent");
            assert_eq!(
                server.driver.calls("cuStreamSynchronize"),
                usize::from(copying),
                "what is queued is waited for"
            );
            assert!(outputs(&one(&model, everything())) == expected, "after {call}, time {after}");
            model.unload();
            // Not `Server::check`: a context that could not be entered is not left either.
            server.host.check();
            assert_eq!(server.driver.current_contexts(), 0);
            server.driver.check();
        }
    }
}

#[test]
fn a_driver_that_cannot_be_used_is_named_and_host_memory_goes_on() {
    let server = Server::new(HOST);
    let model = server.load(CPU_KIND).unwrap();
    server.driver.version(11070);
    let input = input([1, 4, 4, 4], 7).memory(GPU_0.0, GPU_0.1);
    for (request, tensor, copied) in [
        (TestRequest::new([input]), "input 'INPUT0'", "to the host"),
        (request(7).output_memory("CONTOUR", GPU_1.0, GPU_1.1), "output 'CONTOUR'", "there"),
    ] {
        let error = one(&model, request).result().unwrap_err();
        assert_eq!(error.code, TRITONSERVER_ERROR_UNSUPPORTED, "{error}");
        let why = format!("cannot be copied {copied}: no usable NVIDIA driver: it is made for CUDA 11.7");
        assert!(error.message.starts_with(tensor) && error.message.contains(&why), "{error}");
    }
    outputs(&one(&model, request(7)));
    model.unload();
    server.check();
}

#[test]
fn a_context_that_is_broken_is_let_go_of() {
    for (call, code) in [("cuMemcpyDtoHAsync_v2", 700), ("cuEventSynchronize", 214)] {
        let server = Server::new(HOST);
        let model = server.load(CPU_KIND).unwrap();
        outputs(&one(&model, request(1).output_memory("MASK", GPU_0.0, GPU_0.1)));
        server.driver.fail(call, 0, 1, code);
        let released = || server.driver.calls("cuDevicePrimaryCtxRelease_v2");
        for _ in 0..2 {
            let input = input([1, 4, 4, 4], 7).memory(GPU_0.0, GPU_0.1);
            let error = one(&model, TestRequest::new([input])).result().unwrap_err();
            assert_eq!(error.code, TRITONSERVER_ERROR_INTERNAL, "{error}");
            assert_eq!(released(), 1, "others may want to make it anew");
        }
        outputs(&one(&model, request(1)));
        assert_eq!(model.ready(), Ok(()));
        model.unload();
        server.check();
    }
}

#[test]
fn memory_of_an_unknown_kind_is_refused() {
    let server = Server::new(HOST);
    let model = server.load(CPU_KIND).unwrap();
    let input = input([1, 4, 4, 4], 7).memory(9, 0);
    let error = one(&model, TestRequest::new([input])).result().unwrap_err();
    assert_eq!(error.code, TRITONSERVER_ERROR_UNSUPPORTED);
    assert!(
        error.message.contains("input 'INPUT0' lies in memory of unknown type 9; accepted are"),
        "{error}"
    );
    model.unload();
    server.check();
}
