//! MASK_NATIVE and CONTOUR_NATIVE, the results on INPUT0's own grid: the CPU's, to the bit.

use serde_json::{Value, json};
use triton_fake_host::{Answer, TestRequest};

use crate::common::*;

const ALL: [&str; 4] = ["MASK", "CONTOUR", "MASK_NATIVE", "CONTOUR_NATIVE"];

/// The shape and bytes of these outputs, and all that the response says of sizes and places.
#[track_caller]
fn native(answer: &Answer, names: &[&str]) -> Vec<String> {
    let response = answer.result().unwrap_or_else(|e| panic!("{e}"));
    let output = |name: &&str| {
        let found = response.outputs.iter().find(|output| output.name == *name);
        let found = found.unwrap_or_else(|| panic!("no {name}"));
        format!("{name} {:?} {:?}", found.shape, answer.bytes(name).unwrap())
    };
    let said = ["voxels", "mask_voxels", "crop_start", "crop_end", "input_shape"].map(|key| {
        let found = response.parameters.iter().find(|(name, _)| *name == key);
        format!("{:?}", found.unwrap_or_else(|| panic!("no {key}")))
    });
    names.iter().map(output).chain(said).collect()
}

/// The CPU's answer to a request, on a server without GPUs' memory.
fn on_cpu(data_type: &str, parameters: &Value, request: TestRequest) -> Answer {
    let server = Server::new(HOST);
    let model = server.load_config(CPU_KIND, native_config(data_type, parameters.clone())).unwrap();
    let host = ALL.into_iter().fold(request, |request, name| request.output_memory(name, HOST.0, HOST.1));
    let answer = one(&model, host);
    model.unload();
    server.check();
    answer
}

#[test]
fn geometry_of_every_kind_is_the_cpus() {
    for parameters in [
        json!({}),
        json!({"margin": text("3")}),
        json!({"margin": text("0,4,2"), "allow_smaller": text("false")}),
        json!({"k_divisible": text("16")}),
        json!({"margin": text("5"), "allow_smaller": text("false"), "k_divisible": text("3,8,1")}),
        json!({"mode": text("trilinear"), "align_corners": text("true")}),
        json!({"num_components": text("0")}),
    ] {
        for shape in [[1, 11, 9, 33], [1, 1, 30, 5], [3, 5, 9, 33]] {
            let request = || TestRequest::new([input(shape, 4)]);
            let expected = native(&on_cpu("TYPE_UINT8", &parameters, request()), &ALL);
            let server = Server::new(GPU_0);
            let model =
                server.load_config(GPU_KIND, native_config("TYPE_UINT8", parameters.clone())).unwrap();
            assert!(native(&one(&model, request()), &ALL) == expected, "{parameters} {shape:?}");
            model.unload();
            server.check();
        }
    }
}

#[test]
fn every_type_is_written_wherever_the_client_wants_it() {
    for data_type in ["TYPE_FP32", "TYPE_FP16", "TYPE_UINT8", "TYPE_INT32", "TYPE_INT64", "TYPE_BOOL"] {
        let expected = native(&on_cpu(data_type, &json!({}), request(2)), &ALL);
        let server = Server::new(GPU_0);
        let model = server.load_config(GPU_KIND, native_config(data_type, json!({}))).unwrap();
        for mask in [HOST, PINNED, GPU_0, GPU_1] {
            for contour in [HOST, GPU_0] {
                let request = request(2)
                    .output_memory("MASK_NATIVE", mask.0, mask.1)
                    .output_memory("CONTOUR_NATIVE", contour.0, contour.1)
                    .output_misaligned("CONTOUR_NATIVE", 2);
                assert!(native(&one(&model, request), &ALL) == expected, "{data_type} {mask:?} {contour:?}");
            }
        }
        model.unload();
        server.check();
    }
}

#[test]
fn only_what_is_asked_for_is_computed() {
    let everything = on_cpu("TYPE_UINT8", &json!({}), request(3));
    let server = Server::new(GPU_0);
    let model = server.load_config(GPU_KIND, native_config("TYPE_UINT8", json!({}))).unwrap();
    let kernels = ["contour_mask", "native_restore", "native_count_grid"];
    // The voxels are always counted: with one look at each place of the mask on INPUT0's grid, which writes what is asked for.
    for (asked, runs) in [
        (&["MASK"][..], [0, 1, 1]),
        (&["CONTOUR"], [1, 1, 1]),
        (&["MASK_NATIVE"], [0, 1, 1]),
        (&["CONTOUR_NATIVE", "MASK_NATIVE"], [1, 1, 1]),
        (&ALL, [2, 1, 1]),
    ] {
        let before = kernels.map(|kernel| server.driver.calls(&format!("run {kernel}")));
        let request = asked.iter().fold(request(3), |request, name| request.output(name));
        let answer = one(&model, request);
        assert_eq!(answer.result().unwrap().outputs.len(), asked.len());
        assert!(native(&answer, asked) == native(&everything, asked), "{asked:?}");
        let after = kernels.map(|kernel| server.driver.calls(&format!("run {kernel}")));
        let ran: Vec<usize> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        assert_eq!(ran, runs, "{asked:?}: runs of {kernels:?}");
    }
    model.unload();
    server.check();
}

#[test]
fn a_mask_without_a_voxel_is_laid_back_empty() {
    // Above the window's start in one place only, and nowhere in its upper half, where the network says spleen.
    let mut values = vec![-100.0; 11 * 9 * 33];
    values[2000] = 0.0;
    let request =
        || TestRequest::new([triton_fake_host::TestInput::fp32("INPUT0", &[1, 11, 9, 33], &values)]);
    let expected = native(&on_cpu("TYPE_UINT8", &json!({}), request()), &ALL);
    let server = Server::new(GPU_0);
    let model = server.load_config(GPU_KIND, native_config("TYPE_UINT8", json!({}))).unwrap();
    let answer = one(&model, request());
    assert!(native(&answer, &ALL) == expected);
    assert!(answer.bytes("MASK_NATIVE").unwrap().iter().all(|voxel| *voxel == 0));
    model.unload();
    server.check();
}
