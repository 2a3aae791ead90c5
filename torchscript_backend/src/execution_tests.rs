//! The whole backend behind its entry points, on a host that watches who owns what.

use fake_driver::FakeDriver;
use serde_json::{Value, json};
use tempfile::TempDir;
use triton_backend_api::glue::Sequential;
use triton_fake_host::abi::{
    TRITONSERVER_INSTANCEGROUPKIND_CPU, TRITONSERVER_INSTANCEGROUPKIND_GPU, TRITONSERVER_LOG_INFO,
    TRITONSERVER_LOG_WARN, TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_CPU_PINNED, TRITONSERVER_MEMORY_GPU,
};
use triton_fake_host::{
    EntryPoints, FakeHost, GpuMemory, HostError, LoadedModel, ModelSpec, TestInput, TestRequest,
};

use crate::instance::TorchInstance;
use crate::libtorch;
use crate::testing::{write_module, write_module_with_list};

/// A model repository with one TorchScript file.
struct Network {
    folder: TempDir,
    config: Value,
    /// Kind and number of the GPU.
    instances: Vec<(u32, i32)>,
}

impl Network {
    fn new(forward: &str, config: Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("1")).unwrap();
        write_module(&folder.path().join("1"), forward, &[]);
        Self { folder, config, instances: vec![(TRITONSERVER_INSTANCEGROUPKIND_CPU, 0)] }
    }

    fn load<'h>(&self, host: &'h FakeHost) -> Result<LoadedModel<'h>, HostError> {
        let mut spec = ModelSpec::new("net", self.config.clone());
        spec.repository = self.folder.path().to_owned();
        spec.instances = self.instances.clone();
        host.load(EntryPoints::of::<Sequential<TorchInstance>>(), spec)
    }
}

fn tensor(name: &str, dims: &[i64]) -> Value {
    json!({"name": name, "data_type": "TYPE_FP32", "dims": dims})
}

/// One input x and one output, both [-1] beside the batch axis.
fn one_to_one() -> Value {
    json!({"max_batch_size": 8, "input": [tensor("x", &[-1])], "output": [tensor("OUTPUT__0", &[-1])]})
}

fn request(values: &[f32], rows: i64) -> TestRequest {
    TestRequest::new([TestInput::fp32("x", &[rows, values.len() as i64 / rows], values)])
}

fn floats(bytes: Option<Vec<u8>>) -> Vec<f32> {
    bytes.unwrap().chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

const DOUBLE: &str = "x: Tensor) -> Tensor:\n    return torch.mul(x, 2)";

#[test]
fn requests_of_one_execution_go_together_and_get_their_own_rows() {
    let host = FakeHost::new();
    let two = "left: Tensor,\n    right: Tensor) -> Tuple[Tensor, Tensor]:\n    return (torch.add(left, right), torch.sub(left, torch.mean(left)))";
    let config = json!({"max_batch_size": 8, "input": [tensor("right", &[2]), tensor("left", &[2])],
        "output": [tensor("OUTPUT__1", &[2]), tensor("OUTPUT__0", &[2])]});
    let model = Network::new(two, config).load(&host).unwrap();
    let request = |left: &[f32], right: &[f32]| {
        let shape = [left.len() as i64 / 2, 2];
        TestRequest::new([TestInput::fp32("left", &shape, left), TestInput::fp32("right", &shape, right)])
    };
    let requests = [
        request(&[1.0, 2.0], &[10.0, 20.0]),
        request(&[3.0, 4.0, 5.0, 6.0], &[1.0; 4]),
        request(&[7.0, 8.0], &[0.0; 2]).output("OUTPUT__1"),
    ];
    let answers = model.execute(requests).wait();
    assert_eq!(floats(answers[0].bytes("OUTPUT__0")), [11.0, 22.0]);
    assert_eq!(floats(answers[1].bytes("OUTPUT__0")), [4.0, 5.0, 6.0, 7.0]);
    // The mean shows that it was one call: it is that of all three.
    assert_eq!(floats(answers[0].bytes("OUTPUT__1")), [-3.5, -2.5]);
    assert_eq!(floats(answers[2].bytes("OUTPUT__1")), [2.5, 3.5]);
    assert_eq!(answers[2].bytes("OUTPUT__0"), None, "nobody asked for it");
    assert_eq!(answers[1].result().unwrap().outputs[0].shape, [2, 2]);
    let sizes: Vec<_> = host.batch_statistics().iter().map(|report| report.batch_size).collect();
    assert_eq!(sizes, [4]);
    drop(model);
    host.check();
}

#[test]
fn memory_in_pieces_and_at_odd_addresses() {
    let host = FakeHost::new();
    let model = Network::new(DOUBLE, one_to_one()).load(&host).unwrap();
    let input = || TestInput::fp32("x", &[1, 3], &[1.0, 2.0, 3.0]);
    for input in [input(), input().split(&[1, 7]), input().misaligned(3), input().split(&[5]).misaligned(1)] {
        let request = TestRequest::new([input]).output_misaligned("OUTPUT__0", 1).output("OUTPUT__0");
        assert_eq!(floats(model.execute([request]).wait()[0].bytes("OUTPUT__0")), [2.0, 4.0, 6.0]);
    }
    drop(model);
    host.check();
}

#[test]
fn one_bad_request_fails_alone() {
    let host = FakeHost::new();
    let picky = "x: Tensor) -> Tensor:\n    if bool(torch.lt(torch.min(x), 0)):\n      \
        ops.prim.RaiseException(\"negative\", \"builtins.ValueError\")\n    else:\n      pass\n    return torch.mul(x, 2)";
    let model = Network::new(picky, one_to_one()).load(&host).unwrap();
    let wrong_type = TestRequest::new([TestInput::new(
        "x",
        triton_fake_host::abi::TRITONSERVER_TYPE_INT32,
        &[1, 1],
        vec![0; 4],
    )]);
    let requests = [request(&[1.0], 1), request(&[-1.0], 1).id("bad"), wrong_type, request(&[2.0, 3.0], 2)];
    let answers = model.execute(requests).wait();
    assert_eq!(floats(answers[0].bytes("OUTPUT__0")), [2.0]);
    assert_eq!(floats(answers[3].bytes("OUTPUT__0")), [4.0, 6.0]);
    let message = |index: usize| answers[index].result().unwrap_err().message;
    assert!(message(1).ends_with("negative") && !message(1).contains("Traceback"), "{}", message(1));
    assert!(message(2).contains("INT32") && message(2).contains("FP32"), "{}", message(2));
    let counted: Vec<_> = answers.iter().map(|answer| answer.statistics[0].success).collect();
    assert_eq!(counted, [true, false, false, true]);
    let warned = host
        .log()
        .into_iter()
        .filter(|line| line.level == TRITONSERVER_LOG_WARN && line.message.contains("'bad'"));
    assert_eq!(warned.count(), 1);
    drop(model);
    host.check();
}

#[test]
fn a_network_that_writes_to_its_input_answers_right_every_time() {
    let host = FakeHost::new();
    let model =
        Network::new("x: Tensor) -> Tensor:\n    return torch.add_(x, 1)", one_to_one()).load(&host).unwrap();
    for _ in 0..3 {
        assert_eq!(floats(model.execute([request(&[1.0], 1)]).wait()[0].bytes("OUTPUT__0")), [2.0]);
    }
    let told = host.log().into_iter().filter(|line| line.message.contains("`return torch.add_(x, 1)`"));
    assert_eq!(told.map(|line| line.level).collect::<Vec<_>>(), [TRITONSERVER_LOG_INFO]);
    drop(model);
    host.check();
}

#[test]
fn a_write_that_the_code_does_not_show_is_warned_of_once() {
    let host = FakeHost::new();
    let hidden = "x: Tensor) -> Tensor:\n    mean = torch.select(x, 0, 0)\n    ones = torch.ones([1])\n    \
        y = torch.instance_norm(torch.zeros([1, 1, 2]), None, None, mean, ones, True, 0.5, 0.1, False)\n    \
        return torch.select(y, 0, 0)";
    let model = Network::new(hidden, one_to_one()).load(&host).unwrap();
    for _ in 0..3 {
        assert_eq!(floats(model.execute([request(&[4.0], 1)]).wait()[0].bytes("OUTPUT__0")), [0.0; 2]);
    }
    let warned = host.log().into_iter().filter(|line| line.message.contains("wrote to its input"));
    assert_eq!(warned.map(|line| line.level).collect::<Vec<_>>(), [TRITONSERVER_LOG_WARN]);
    drop(model);
    host.check();
}

#[test]
fn a_network_that_keeps_views_of_its_input_finds_them_in_the_next_call() {
    let host = FakeHost::new();
    let network = Network::new(DOUBLE, one_to_one());
    let adds_all = "x: Tensor) -> Tensor:\n    cache = self.cache\n    _0 = torch.append(cache, torch.select(x, 0, 0))\n    \
        return torch.sum(torch.stack(cache), [0], True)";
    write_module_with_list(&network.folder.path().join("1"), adds_all, "cache");
    let model = network.load(&host).unwrap();
    let answers = [1.0, 20.0, 300.0]
        .map(|value| floats(model.execute([request(&[value], 1)]).wait()[0].bytes("OUTPUT__0")));
    assert_eq!(answers, [[1.0], [21.0], [321.0]]);
    drop(model);
    host.check();
}

#[test]
fn a_network_that_keeps_its_input_finds_it_in_the_next_call() {
    let host = FakeHost::new();
    let network = Network::new(DOUBLE, one_to_one());
    let adds_last =
        "x: Tensor) -> Tensor:\n    last = self.last\n    self.last = x\n    return torch.add(x, last)";
    write_module(&network.folder.path().join("1"), adds_last, &[("last", &[1], vec![0.0])]);
    let model = network.load(&host).unwrap();
    let answers = [1.0, 20.0, 300.0]
        .map(|value| floats(model.execute([request(&[value], 1)]).wait()[0].bytes("OUTPUT__0")));
    assert_eq!(answers, [[1.0], [21.0], [320.0]]);
    drop(model);
    host.check();
}

#[test]
fn results_are_held_to_the_configuration() {
    for (body, part) in [
        ("torch.to(x, 7)", "returned FP64"),
        ("torch.sum(x)", "returned []"),
        ("torch.sum(x, [0])", "returned [2]"),
        ("torch.slice(x, 0, 0, 1)", "returned [1, 2]"),
        ("torch.slice(x, 1, 0, 1)", ""),
        ("torch.transpose(x, 0, 1)", ""),
    ] {
        let host = FakeHost::new();
        let network = Network::new(&format!("x: Tensor) -> Tensor:\n    return {body}"), one_to_one());
        let answers = network.load(&host).unwrap().execute([request(&[1.0, 2.0, 3.0, 4.0], 2)]).wait();
        match answers[0].result() {
            Err(error) => assert!(!part.is_empty() && error.message.contains(part), "{body}: {error}"),
            Ok(_) => assert_eq!(part, "", "{body}"),
        }
        host.check();
    }
}

#[test]
fn shapes_without_a_batch_axis_and_reshaped_ones() {
    let host = FakeHost::new();
    let config = json!({"max_batch_size": 0, "input": [tensor("x", &[2, 2])], "output": [tensor("OUTPUT__0", &[2, 2])]});
    let model = Network::new(DOUBLE, config).load(&host).unwrap();
    let answers = model.execute([request(&[1.0, 2.0, 3.0, 4.0], 2), request(&[5.0; 4], 2)]).wait();
    assert_eq!(floats(answers[0].bytes("OUTPUT__0")), [2.0, 4.0, 6.0, 8.0]);
    assert_eq!(floats(answers[1].bytes("OUTPUT__0")), [10.0; 4]);
    drop(model);
    let mut config = one_to_one();
    config["output"][0] =
        json!({"name": "OUTPUT__0", "data_type": "TYPE_FP32", "dims": [1], "reshape": {"shape": []}});
    let model =
        Network::new("x: Tensor) -> Tensor:\n    return torch.sum(x, [1])", config).load(&host).unwrap();
    let answers = model.execute([request(&[1.0, 2.0, 3.0, 4.0], 2)]).wait();
    assert_eq!(floats(answers[0].bytes("OUTPUT__0")), [3.0, 7.0]);
    drop(model);
    host.check();
}

#[test]
fn instances_with_weights_of_their_own_or_shared() {
    for shared in ["true", "false"] {
        let host = FakeHost::new();
        let mut network = Network::new(DOUBLE, one_to_one());
        network.config["parameters"] = json!({"ENABLE_WEIGHT_SHARING": {"string_value": shared}});
        network.instances = vec![(TRITONSERVER_INSTANCEGROUPKIND_CPU, 0); 2];
        let model = network.load(&host).unwrap();
        std::thread::scope(|scope| {
            for instance in 0..2 {
                let model = &model;
                scope.spawn(move || {
                    for value in 0..20 {
                        let answers = model.execute_on(instance, [request(&[value as f32], 1)]).wait();
                        assert_eq!(floats(answers[0].bytes("OUTPUT__0")), [value as f32 * 2.0]);
                    }
                });
            }
        });
        drop(model);
        host.check();
    }
}

/// Why no GPU can be used here, or how many there are, in the words of an error.
fn gpus() -> String {
    match libtorch::gpus() {
        Ok(count) => format!("libtorch sees {count} GPUs"),
        Err(why) => {
            let reason = why.strip_prefix("libtorch_cuda.so cannot be loaded: ").unwrap_or_default();
            assert!(reason.contains(".so"), "which library is missing: {why}");
            why
        }
    }
}

#[test]
fn a_gpu_instance_that_cannot_run_on_its_gpu_refuses_the_load() {
    let host = FakeHost::new();
    let mut network = Network::new(DOUBLE, one_to_one());
    network.instances.push((TRITONSERVER_INSTANCEGROUPKIND_GPU, 999));
    let error = network.load(&host).map(drop).unwrap_err();
    for part in ["net_1", "KIND_GPU", "GPU 999", &gpus(), "KIND_CPU"] {
        assert!(error.message.contains(part), "{part}: {error}");
    }
    host.check();
}

/// A server with GPUs of the emulated driver.
fn server(gpus: u8) -> (FakeHost, FakeDriver) {
    let driver = FakeDriver::new(gpus.into());
    let host = FakeHost::new();
    host.use_gpu_memory(GpuMemory {
        allocate: |device, byte_size| fake_driver::allocate(device as i32, byte_size),
        free: fake_driver::free,
        read: |base, bytes| bytes.copy_from_slice(&fake_driver::read(base, bytes.len())),
        write: fake_driver::write,
    });
    host.set_gpus(gpus.into());
    (host, driver)
}

const HOST: (u32, i64) = (TRITONSERVER_MEMORY_CPU, 0);
const GPU_0: (u32, i64) = (TRITONSERVER_MEMORY_GPU, 0);
const GPU_1: (u32, i64) = (TRITONSERVER_MEMORY_GPU, 1);

#[test]
fn a_network_on_the_cpu_reads_and_writes_memory_of_gpus() {
    // The second writes to its input.
    for operator in ["mul(x, 2)", "mul_(x, 2)"] {
        let (host, driver) = server(2);
        let forward = format!("x: Tensor) -> Tensor:\n    return torch.{operator}");
        let model = Network::new(&forward, one_to_one()).load(&host).unwrap();
        let x = |values: &[f32]| TestInput::fp32("x", &[1, 3], values);
        for memories in [&[GPU_0][..], &[GPU_1], &[HOST, GPU_1, GPU_0]] {
            for to in [HOST, GPU_0, GPU_1] {
                let there = x(&[1.0, 2.0, 3.0]).split(&[1, 7]).memories(memories);
                let requests = [
                    TestRequest::new([there]).output_memory("OUTPUT__0", to.0, to.1),
                    TestRequest::new([x(&[4.0, 5.0, 6.0])]),
                ];
                let answers = model.execute(requests).wait();
                let found = [0, 1].map(|index| floats(answers[index].bytes("OUTPUT__0")));
                assert_eq!(found, [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]], "{operator} {memories:?} {to:?}");
            }
        }
        drop(model);
        host.check();
        driver.check();
    }
}

#[test]
fn a_copy_that_fails_fails_its_request_alone() {
    let (host, driver) = server(1);
    let model = Network::new(DOUBLE, one_to_one()).load(&host).unwrap();
    for (call, name) in [("cuMemcpyDtoHAsync_v2", "'x'"), ("cuMemcpyHtoDAsync_v2", "OUTPUT__0")] {
        driver.fail(call, 0, 1, 1);
        let there = TestRequest::new([TestInput::fp32("x", &[1, 1], &[1.0]).memory(GPU_0.0, GPU_0.1)])
            .output_memory("OUTPUT__0", GPU_0.0, GPU_0.1);
        let answers = model.execute([there, request(&[2.0], 1)]).wait();
        let error = answers[0].result().unwrap_err();
        assert!(error.message.contains(call) && error.message.contains(name), "{error}");
        assert_eq!(floats(answers[1].bytes("OUTPUT__0")), [4.0], "{call}");
    }
    drop(model);
    host.check();
    driver.check();
}

#[test]
fn memory_of_a_gpu_that_cannot_be_used_fails_its_request_alone_and_is_not_touched() {
    let driver = FakeDriver::new(0);
    let host = FakeHost::new();
    host.set_gpus(1);
    let model = Network::new(DOUBLE, one_to_one()).load(&host).unwrap();
    let x = || TestInput::fp32("x", &[1, 2], &[1.0, 2.0]);
    let pinned = TestRequest::new([x().memory(TRITONSERVER_MEMORY_CPU_PINNED, 0)]).output_memory(
        "OUTPUT__0",
        TRITONSERVER_MEMORY_CPU_PINNED,
        0,
    );
    let requests = [
        TestRequest::new([x().memory(GPU_0.0, GPU_0.1)]),
        request(&[1.0, 2.0], 1).output_memory("OUTPUT__0", GPU_0.0, GPU_0.1),
        pinned.output("OUTPUT__0"),
    ];
    let answers = model.execute(requests).wait();
    for (answer, name) in answers.iter().zip(["input 'x'", "output OUTPUT__0"]) {
        let message = answer.result().unwrap_err().message;
        for part in
            [name, "lies in memory of GPU 0", "cannot be copied", "no CUDA-capable device is detected"]
        {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
    assert_eq!(floats(answers[2].bytes("OUTPUT__0")), [2.0, 4.0]);
    drop(model);
    host.check();
    driver.check();
}

#[test]
fn autocast_computes_in_half_precision_and_answers_as_configured() {
    // 1 + 1/256 has one digit more than BF16, 1 + 1/2048 one more than FP16.
    let product = "x: Tensor) -> Tensor:\n    return torch.matmul(x, torch.ones([1, 1]))";
    for (value, small, expected) in [
        ("off", 256.0, 1.0 + 1.0 / 256.0),
        ("bfloat16", 256.0, 1.0),
        ("float16", 256.0, 1.0 + 1.0 / 256.0),
        ("float16", 2048.0, 1.0),
    ] {
        let host = FakeHost::new();
        let mut config = one_to_one();
        config["parameters"] = json!({"AUTOCAST": {"string_value": value}});
        let model = Network::new(product, config).load(&host).unwrap();
        let answers = model.execute([request(&[1.0 + 1.0 / small], 1)]).wait();
        assert_eq!(floats(answers[0].bytes("OUTPUT__0")), [expected], "{value}");
        drop(model);
        host.check();
    }
}

#[test]
fn what_cannot_be_served_refuses_the_load() {
    let with = |pointer: &str, value: Value| {
        let mut network = Network::new(DOUBLE, one_to_one());
        match network.config.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => network.config[pointer.trim_start_matches('/')] = value,
        }
        network
    };
    let parameter = |value: &str| with("/parameters", json!({"MEMORY_FORMAT": {"string_value": value}}));
    let broken = Network::new(DOUBLE, one_to_one());
    std::fs::write(broken.folder.path().join("1/model.pt"), "no zip").unwrap();
    for (network, parts) in [
        (with("/default_model_filename", json!("other.pt")), &["1/other.pt"][..]),
        (broken, &["1/model.pt is not a TorchScript file"]),
        (parameter("channels_first"), &["MEMORY_FORMAT", "channels_first", "channels_last_3d"]),
        (with("/input/0/data_type", json!("TYPE_STRING")), &["x", "TYPE_STRING", "TYPE_FP32"]),
        (with("/output/0/data_type", json!("TYPE_UINT64")), &["OUTPUT__0", "TYPE_UINT64", "TYPE_FP32"]),
        (with("/output/0/name", json!("OUTPUT__1")), &["OUTPUT__1", "returns 1"]),
        (with("/input", json!([tensor("x", &[1]), tensor("y", &[1])])), &["takes 1"]),
        (with("/input", json!([])), &["no input stands for argument 0 (x)"]),
        (with("/batch_input", json!([{"kind": "BATCH_ELEMENT_COUNT"}])), &["batch_input"]),
        (with("/sequence_batching", json!({"state": [{}]})), &["state"]),
    ] {
        let host = FakeHost::new();
        let error = network.load(&host).map(drop).expect_err(parts[0]);
        for part in parts {
            assert!(error.message.contains(part), "{part}: {error}");
        }
        host.check();
    }
}
