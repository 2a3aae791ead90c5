//! A server with GPUs, the backend on it, and a network.

use fake_driver::FakeDriver;
use serde_json::{Value, json};
use triton_fake_host::{
    Answer, ChildCall, ChildOutput, FakeHost, GpuMemory, HostError, LoadedModel, ModelSpec, TestInput,
    TestRequest, abi::*, exported_entry_points,
};
use triton_spleenseg as _; // its entry points

pub const HOST: (u32, i64) = (TRITONSERVER_MEMORY_CPU, 0);
pub const PINNED: (u32, i64) = (TRITONSERVER_MEMORY_CPU_PINNED, 0);
pub const GPU_0: (u32, i64) = (TRITONSERVER_MEMORY_GPU, 0);
pub const GPU_1: (u32, i64) = (TRITONSERVER_MEMORY_GPU, 1);

pub const GPU_KIND: (u32, i32) = (TRITONSERVER_INSTANCEGROUPKIND_GPU, 0);
pub const CPU_KIND: (u32, i32) = (TRITONSERVER_INSTANCEGROUPKIND_CPU, 0);

/// The size that volumes are resized to.
pub const SIZE: [i64; 3] = [6, 7, 40];

pub struct Server {
    pub host: FakeHost,
    pub driver: FakeDriver,
}

impl Server {
    /// Two GPUs, and a network that likes its memory to be of that kind.
    pub fn new(network_memory: (u32, i64)) -> Self {
        // The driver first: whoever has it may use the host.
        let driver = FakeDriver::new(2);
        let host = FakeHost::new();
        host.use_gpu_memory(GpuMemory {
            allocate: |device, byte_size| fake_driver::allocate(device as i32, byte_size),
            free: fake_driver::free,
            read: |base, bytes| bytes.copy_from_slice(&fake_driver::read(base, bytes.len())),
            write: fake_driver::write,
        });
        host.set_gpus(2);
        host.child("segmentation_3d", move |call| network(call, network_memory));
        Self { host, driver }
    }

    pub fn load(&self, kind: (u32, i32)) -> Result<LoadedModel<'_>, HostError> {
        self.load_with(kind, "TYPE_FP32", json!({}))
    }

    pub fn load_with(
        &self,
        kind: (u32, i32),
        data_type: &str,
        parameters: Value,
    ) -> Result<LoadedModel<'_>, HostError> {
        self.load_config(kind, config(data_type, parameters))
    }

    pub fn load_config(&self, kind: (u32, i32), config: Value) -> Result<LoadedModel<'_>, HostError> {
        let mut spec = spec(config);
        spec.instances = vec![kind];
        self.load_spec(spec)
    }

    pub fn load_spec(&self, spec: ModelSpec) -> Result<LoadedModel<'_>, HostError> {
        self.host.load(exported_entry_points!(), spec)
    }

    /// Nothing was done wrong and nothing is left, on either side.
    #[track_caller]
    pub fn check(self) {
        let Self { host, driver } = self;
        host.check();
        assert_eq!(driver.current_contexts(), 0, "a context is left current");
        let [pushed, popped] = ["cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"].map(|call| driver.calls(call));
        assert_eq!(pushed, popped, "contexts entered, and left");
        driver.check();
    }
}

fn outputs_of<const N: usize>(names: [&str; N], data_type: &str, dims: [i64; 4]) -> [Value; N] {
    names.map(|name| json!({"name": name, "data_type": data_type, "dims": dims}))
}

/// With MASK and CONTOUR.
pub fn config(data_type: &str, parameters: Value) -> Value {
    let [h, w, d] = SIZE;
    let mut all = json!({"spatial_size": {"string_value": format!("{h},{w},{d}")}});
    all.as_object_mut().unwrap().extend(parameters.as_object().unwrap().clone());
    json!({
        "max_batch_size": 4,
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1, -1, -1]}],
        "output": outputs_of(["MASK", "CONTOUR"], data_type, [1, h, w, d]),
        "parameters": all,
    })
}

/// With the outputs on INPUT0's grid too.
pub fn native_config(data_type: &str, parameters: Value) -> Value {
    let mut config = config(data_type, parameters);
    let native = outputs_of(["MASK_NATIVE", "CONTOUR_NATIVE"], data_type, [1, -1, -1, -1]);
    config["output"].as_array_mut().unwrap().extend(native);
    config
}

/// The model with this configuration.
pub fn spec(config: Value) -> ModelSpec {
    ModelSpec::new("spleen_seg", config)
}

/// A parameter's value, as configurations have it.
pub fn text(value: &str) -> Value {
    json!({"string_value": value})
}

/// Scores that make a mask with holes: the second class wins above a half.
pub fn network(call: &mut ChildCall, memory: (u32, i64)) {
    let input = call.input("INPUT__0").unwrap();
    let values = input.bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes));
    let mut scores: Vec<f32> = values.clone().map(|_| 0.5).collect();
    scores.extend(values);
    let mut shape = input.shape.clone();
    shape[1] = 2;
    let output = ChildOutput::fp32("OUTPUT__0", &shape, &scores).preferring(memory.0, memory.1);
    call.respond(vec![output]);
}

/// Intensities without a pattern, most of them inside the window.
pub fn voxels(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    (0..count).map(|_| (next() % 4000) as f32 / 10.0 - 150.0).collect()
}

pub fn input(shape: [i64; 4], seed: u32) -> TestInput {
    let count = shape.iter().product::<i64>() as usize;
    TestInput::fp32("INPUT0", &shape, &voxels(count, seed))
}

/// A request for one small volume.
pub fn request(seed: u32) -> TestRequest {
    TestRequest::new([input([1, 11, 9, 33], seed)])
}

pub fn one(model: &LoadedModel<'_>, request: TestRequest) -> Answer {
    model.execute([request]).wait().remove(0)
}

#[track_caller]
pub fn outputs(answer: &Answer) -> [Vec<u8>; 2] {
    if let Err(e) = answer.result() {
        panic!("{e}");
    }
    ["MASK", "CONTOUR"].map(|name| answer.bytes(name).unwrap())
}

/// What the CPU answers to a request.
pub fn expected(request: TestRequest) -> [Vec<u8>; 2] {
    let host = FakeHost::new();
    host.child("segmentation_3d", |call| network(call, HOST));
    let server = Server { host, driver: FakeDriver::unused() };
    let model = server.load(CPU_KIND).unwrap();
    outputs(&one(&model, request))
}

/// Requests in flight together, each with an answer of its own, again and again. `of` makes one from a seed; they hold what
/// [`request`] of the same seed does.
#[track_caller]
pub fn check_requests_in_flight(
    kind: (u32, i32),
    network_memory: (u32, i64),
    of: impl Fn(u32) -> TestRequest,
) {
    let expected: Vec<_> = (0..4).map(|seed| expected(request(seed))).collect();
    let server = Server::new(network_memory);
    let model = server.load_with(kind, "TYPE_FP32", json!({"max_in_flight": text("4")})).unwrap();
    for _ in 0..5 {
        let answers = model.execute((0..4).map(&of)).wait();
        for (answer, expected) in answers.iter().zip(&expected) {
            assert!(outputs(answer) == *expected);
        }
    }
    model.unload();
    server.check();
}
