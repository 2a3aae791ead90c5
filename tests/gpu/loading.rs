//! Which GPUs and drivers an instance loads on.

use fake_driver::FakeDriver;
use triton_fake_host::{FakeHost, exported_entry_points};

use crate::common::*;
use triton_fake_host::abi::*;
use triton_spleenseg::cuda::images::CUBINS;

#[track_caller]
fn refused(prepare: impl FnOnce(&Server), device: i32, code: u32, expected: &str) {
    let server = Server::new(HOST);
    prepare(&server);
    let refusal = server.load((TRITONSERVER_INSTANCEGROUPKIND_GPU, device)).map(drop);
    let Err(error) = refusal else { panic!("loaded; expected: {expected}") };
    assert_eq!(error.code, code, "{error}");
    assert!(error.message.contains(expected), "{error}");
    assert!(error.message.starts_with("instance 'spleen_seg_0' is KIND_GPU: "), "{error}");
    assert!(!error.message.contains('\n'), "{error}");
    server.driver.heal();
    server.check();
}

#[test]
fn what_a_gpu_or_driver_lacks_is_said_in_one_line() {
    const UNSUPPORTED: u32 = TRITONSERVER_ERROR_UNSUPPORTED;
    refused(
        |s| s.driver.fail("cuInit", 0, 1, 100),
        0,
        UNSUPPORTED,
        "no usable NVIDIA driver: cuInit failed: CUDA_ERROR_NO_DEVICE",
    );
    // A stub; a system that is not ready; another driver in the kernel; a driver too new for the GPU.
    for code in [34, 802, 803, 804] {
        let expected = format!("no usable NVIDIA driver: cuInit failed: CUDA error {code}");
        refused(|s| s.driver.fail("cuInit", 0, 1, code), 0, UNSUPPORTED, &expected);
    }
    refused(
        |s| s.driver.version(11070),
        0,
        UNSUPPORTED,
        "made for CUDA 11.7; accepted is CUDA 11.8 or later",
    );
    refused(|_| (), 2, UNSUPPORTED, "GPU 2; this machine has 2, numbered from 0");
    refused(
        |s| s.driver.device(0, 61, 1 << 30),
        0,
        UNSUPPORTED,
        "has compute capability 6.1; accepted is 7.0 or later",
    );
    let retain = "cuDevicePrimaryCtxRetain";
    refused(|s| s.driver.fail(retain, 0, 1, 2), 0, TRITONSERVER_ERROR_INTERNAL, retain);
}

#[test]
fn a_driver_without_a_gpu_is_none_that_can_be_used() {
    let driver = FakeDriver::new(0);
    let server = Server { host: FakeHost::new(), driver };
    let error = server.load(GPU_KIND).map(drop).unwrap_err();
    assert_eq!(error.code, TRITONSERVER_ERROR_UNSUPPORTED, "{error}");
    assert_eq!(
        error.message,
        "instance 'spleen_seg_0' is KIND_GPU: no usable NVIDIA driver: cuInit failed: CUDA_ERROR_NO_DEVICE, no \
         CUDA-capable device is detected"
    );
    server.check();
}

#[test]
fn an_instance_of_another_kind_is_refused() {
    let server = Server::new(HOST);
    let error = server.load((TRITONSERVER_INSTANCEGROUPKIND_MODEL, 0)).map(drop).unwrap_err();
    let expected = "instance 'spleen_seg_0' is KIND_MODEL; accepted by this build is KIND_CPU and KIND_GPU";
    assert_eq!(error.message, expected);
    server.check();
}

#[test]
fn a_refused_instance_loads_once_the_driver_is_there() {
    let server = Server::new(HOST);
    server.driver.fail("cuInit", 0, 1, 100);
    assert!(server.load(GPU_KIND).is_err());
    let model = server.load(GPU_KIND).unwrap();
    assert_eq!(model.ready(), Ok(()));
    model.unload();
    server.check();
}

#[test]
fn every_gpu_gets_the_newest_machine_code_that_it_runs_or_the_ptx() {
    let images = CUBINS.iter().map(|(made_for, _)| format!("load sm_{made_for}"));
    let images: Vec<String> = images.chain(["load compute_70".to_owned()]).collect();
    let expected = [
        (70, "compute_70"), // Volta
        (72, "compute_70"),
        (75, "sm_75"), // Turing
        (80, "sm_80"), // Ampere
        (86, "sm_86"),
        (87, "sm_86"),
        (89, "sm_89"),   // Ada
        (90, "sm_90"),   // Hopper
        (100, "sm_100"), // Blackwell
        (103, "sm_100"),
        (110, "compute_70"),
        (120, "sm_120"),
        (121, "sm_120"),
        (130, "compute_70"), // none of today's
    ];
    for (capability, image) in expected {
        let server = Server::new(HOST);
        server.driver.device(0, capability, 1 << 30);
        let model = server.load(GPU_KIND).unwrap();
        let given: Vec<&str> = images
            .iter()
            .filter(|image| server.driver.calls(image) > 0)
            .map(|image| image.trim_start_matches("load "))
            .collect();
        assert_eq!(given, [image], "compute capability {capability}");
        assert_eq!(server.driver.calls("cuModuleLoadData"), 1, "compute capability {capability}");
        model.unload();
        server.check();
    }
}

#[test]
fn where_the_driver_refuses_the_machine_code_it_compiles_the_ptx() {
    for capability in [86, 70, 130] {
        let server = Server::new(HOST);
        server.driver.device(0, capability, 1 << 30);
        server.driver.refuse_images(b"\x7fELF");
        let model = server.load(GPU_KIND).unwrap();
        let compiles =
            |line: &triton_fake_host::LogLine| line.message.contains("the driver compiles the kernels' PTX");
        assert!(server.host.log().iter().any(compiles), "compute capability {capability}");
        assert_eq!(server.driver.calls("load compute_70"), 1, "compute capability {capability}");
        outputs(&one(&model, request(1)));
        model.unload();
        server.check();
    }
}

#[test]
fn gpus_are_preferred_where_there_are_some() {
    let server = Server::new(HOST);
    let preferred = server.host.backend_attributes(&exported_entry_points!()).unwrap();
    assert_eq!(preferred, [TRITONSERVER_INSTANCEGROUPKIND_GPU, TRITONSERVER_INSTANCEGROUPKIND_CPU]);
    server.check();
}

#[test]
fn a_cpu_instance_calls_no_driver_while_all_is_on_the_host() {
    let server = Server::new(HOST);
    let model = server.load(CPU_KIND).unwrap();
    outputs(&one(&model, request(1)));
    assert_eq!(server.driver.calls("cuInit") + server.driver.calls("cuDeviceGetCount"), 0);
    model.unload();
    server.check();
}
