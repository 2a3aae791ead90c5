//! Wherever inputs, the network's answers and outputs lie, the results are the CPU's.

use serde_json::json;
use triton_fake_host::{TestRequest, abi::*};

use crate::common::*;

#[test]
fn inputs_from_anywhere_give_the_results_of_the_cpu() {
    let shape = [1, 11, 9, 33];
    let expected = expected(TestRequest::new([input(shape, 1)]));
    for network in [HOST, GPU_0, GPU_1] {
        let server = Server::new(network);
        let model = server.load(GPU_KIND).unwrap();
        for memory in [HOST, PINNED, GPU_0, GPU_1] {
            for misalign in [0, 2] {
                for cuts in [&[][..], &[1002, 1003, 5000]] {
                    let input = input(shape, 1).memory(memory.0, memory.1).misaligned(misalign).split(cuts);
                    let found = outputs(&one(&model, TestRequest::new([input])));
                    assert!(found == expected, "{network:?} {memory:?} {misalign} {cuts:?}");
                }
            }
        }
        let mixed = input(shape, 1).split(&[1002, 1003, 5000]).memories(&[GPU_1, HOST, GPU_0, PINNED]);
        assert!(
            outputs(&one(&model, TestRequest::new([mixed]))) == expected,
            "{network:?}, a buffer of each"
        );
        model.unload();
        server.check();
    }
}

#[test]
fn outputs_are_written_where_the_client_wants_them() {
    let expected = expected(request(2));
    let server = Server::new(GPU_0);
    let model = server.load(GPU_KIND).unwrap();
    for mask in [HOST, PINNED, GPU_0, GPU_1] {
        for contour in [HOST, GPU_0] {
            for misalign in [0, 2] {
                let request = request(2)
                    .output_memory("MASK", mask.0, mask.1)
                    .output_memory("CONTOUR", contour.0, contour.1)
                    .output_misaligned("MASK", misalign);
                assert!(outputs(&one(&model, request)) == expected, "{mask:?} {contour:?} {misalign}");
            }
        }
    }
    model.unload();
    server.check();
}

#[test]
fn an_output_lies_on_the_gpu_unless_the_client_wants_it_elsewhere() {
    let server = Server::new(GPU_0);
    let model = server.load(GPU_KIND).unwrap();
    let before = server.driver.calls("cuMemcpyDtoHAsync_v2");
    one(&model, request(3).output("MASK")).result().unwrap();
    let small = server.driver.calls("cuMemcpyDtoHAsync_v2") - before;
    one(&model, request(3).output("MASK").output_memory("MASK", HOST.0, HOST.1)).result().unwrap();
    let more = server.driver.calls("cuMemcpyDtoHAsync_v2") - before - small;
    assert_eq!(more, small + 1, "the one output more is copied to the host");
    model.unload();
    server.check();
}

#[test]
fn every_type_of_output_and_a_batch_of_volumes() {
    for data_type in ["TYPE_FP32", "TYPE_FP16", "TYPE_UINT8", "TYPE_INT32", "TYPE_INT64", "TYPE_BOOL"] {
        let request = || TestRequest::new([input([3, 5, 9, 33], 4)]);
        let server = Server::new(GPU_0);
        let on_cpu = server.load_with(CPU_KIND, data_type, json!({})).unwrap();
        // The fake network is told by the memory that it is given: on the CPU it answers there.
        let expected = outputs(&one(
            &on_cpu,
            request().output_memory("MASK", HOST.0, HOST.1).output_memory("CONTOUR", HOST.0, HOST.1),
        ));
        on_cpu.unload();
        let model = server.load_with(GPU_KIND, data_type, json!({})).unwrap();
        assert!(outputs(&one(&model, request())) == expected, "{data_type}");
        model.unload();
        server.check();
    }
}

#[test]
fn a_large_volume_is_searched_while_it_is_still_being_copied() {
    let shape = [1, 40, 256, 256]; // 10 MiB
    let expected = expected(TestRequest::new([input(shape, 5)]));
    let server = Server::new(GPU_0);
    let model = server.load(GPU_KIND).unwrap();
    let found = outputs(&one(&model, TestRequest::new([input(shape, 5).split(&[1_000_001, 3_000_002])])));
    assert!(found == expected);
    assert_eq!(server.driver.calls("run foreground_fp32"), 3, "pieces of 4 MiB");
    model.unload();
    server.check();
}

#[test]
fn a_warm_instance_allocates_nothing() {
    let server = Server::new(GPU_0);
    let model = server.load(GPU_KIND).unwrap();
    let allocations = || ["cuMemAlloc_v2", "cuMemHostAlloc"].map(|call| server.driver.calls(call));
    let first = outputs(&one(&model, request(6)));
    let warm = allocations();
    for _ in 0..10 {
        assert!(outputs(&one(&model, request(6))) == first);
    }
    let ([device, pinned], [warm_device, warm_pinned]) = (allocations(), warm);
    assert_eq!(pinned, warm_pinned);
    // The network may give its input back later than the first time: then another block is taken instead.
    assert!(device <= warm_device + 2, "{device} blocks, {warm_device} of the first request");
    model.unload();
    server.check();
}

#[test]
fn the_pools_hold_all_that_the_largest_requests_need() {
    for in_flight in [1, 2] {
        let server = Server::new(HOST);
        let mut config = native_config("TYPE_UINT8", json!({"max_in_flight": text(&in_flight.to_string())}));
        config["max_batch_size"] = json!(1);
        let model = server.load_config(GPU_KIND, config).unwrap();
        // From the host in three pieces.
        let request = || {
            let names = ["MASK", "CONTOUR", "MASK_NATIVE", "CONTOUR_NATIVE"].into_iter();
            let request = TestRequest::new([input([1, 33, 256, 256], 9)]);
            names.fold(request, |request, name| request.output(name).output_memory(name, HOST.0, HOST.1))
        };
        for _ in 0..2 {
            let answers = model.execute((0..in_flight).map(|_| request())).wait();
            answers.iter().for_each(|answer| assert!(answer.result().is_ok()));
        }
        let given_back = ["cuMemFree_v2", "cuMemFreeHost"].map(|call| server.driver.calls(call));
        assert_eq!(given_back, [0, 0], "{in_flight} in flight");
        model.unload();
        server.check();
    }
}

#[test]
fn volumes_of_all_sizes_do_not_fill_the_gpu() {
    let used_after = |depths: std::ops::Range<i64>| {
        let server = Server::new(GPU_0);
        let model = server.load(GPU_KIND).unwrap();
        for depth in depths {
            outputs(&one(&model, TestRequest::new([input([1, 40, 40, depth], 11)])));
        }
        let used = server.driver.used(0);
        model.unload();
        server.check();
        used
    };
    // Each is too large for the memory of the one before.
    let (largest, all) = (used_after(59..60), used_after(40..60));
    assert!(all <= 2 * largest, "{all} bytes after all, {largest} after the largest alone");
}

#[test]
fn volumes_of_all_sizes_come_to_allocate_hardly_anything() {
    let server = Server::new(HOST);
    // The network's volume beside the largest input as 224 x 224 x 224 is beside 512 x 512 x 400.
    let mut config = native_config("TYPE_UINT8", json!({"spatial_size": text("32,32,40")}));
    for output in [0, 1] {
        config["output"][output]["dims"] = json!([1, 32, 32, 40]);
    }
    let model = server.load_config(GPU_KIND, config).unwrap();
    let calls = || {
        ["cuMemAlloc_v2", "cuMemHostAlloc", "cuMemFree_v2", "cuMemFreeHost"]
            .map(|call| server.driver.calls(call))
    };
    let request = |depth| {
        let names = ["MASK", "CONTOUR", "MASK_NATIVE", "CONTOUR_NATIVE"].into_iter();
        let request = TestRequest::new([input([1, 64, 64, depth], 12)]);
        names.fold(request, |request, name| request.output(name).output_memory(name, HOST.0, HOST.1))
    };
    // Every other depth from 15 to 99 once, without an order.
    let all_depths = |round: i64| {
        for at in 0..43 {
            one(&model, request(15 + (at * 37 + round * 11) % 43 * 2)).result().unwrap();
        }
        calls()
    };
    let (warm, after) = (all_depths(0), all_depths(1));
    let more: usize = after.iter().zip(warm).map(|(after, warm)| after - warm).sum();
    assert!(more <= 4, "{more} blocks allocated or given back in 43 requests");
}

#[test]
fn a_request_waits_no_more_often_than_memory_changes_hands() {
    let server = Server::new(GPU_0);
    let model = server.load(GPU_KIND).unwrap();
    outputs(&one(&model, request(10)));
    let before = server.driver.calls("cuEventSynchronize");
    outputs(&one(&model, request(10)));
    // The box, the network's input, memory for its answer, the counts of NaN and of voxels, and each output.
    assert_eq!(server.driver.calls("cuEventSynchronize") - before, 7);
    model.unload();
    server.check();
}

#[test]
fn requests_in_flight_together_do_not_meet() {
    check_requests_in_flight(GPU_KIND, GPU_0, request);
}

#[test]
fn between_two_models_on_the_gpu_no_volume_crosses_to_the_host() {
    let server = Server::new(GPU_0);
    // As a real one's 64 MB are, too small for the scores.
    server.host.set_gpu_pool(2 * 6 * 7 * 40 * 4 - 1);
    let model = server.load(GPU_KIND).unwrap();
    let input = input([1, 11, 9, 33], 8).memory(GPU_0.0, GPU_0.1);
    outputs(&one(&model, TestRequest::new([input])));
    let copies = ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2"].map(|call| server.driver.calls(call));
    assert_eq!(copies, [0, 0], "input and scores are used where they lie");
    model.unload();
    server.check();
}

#[test]
fn memory_of_an_unknown_kind_is_refused() {
    let server = Server::new(GPU_0);
    let model = server.load(GPU_KIND).unwrap();
    let input = input([1, 4, 4, 4], 7).memory(9, 0);
    let error = one(&model, TestRequest::new([input])).result().unwrap_err();
    assert_eq!(error.code, TRITONSERVER_ERROR_UNSUPPORTED);
    model.unload();
    server.check();
}
