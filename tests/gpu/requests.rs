//! Requests of every sort are answered as on the CPU: their results, their errors, and what the log says of them.

use std::time::Duration;

use half::f16;
use serde_json::{Value, json};
use triton_fake_host::{
    ChildCall, ChildOutput, HostError, LogLine, OutputTensor, TestInput, TestRequest, abi::*,
};

use crate::common::*;

type Network = fn(&mut ChildCall, (u32, i64));
type Outcome = Result<Vec<OutputTensor>, HostError>;

/// The same requests in one call of Execute to an instance of each kind, with the network's answers in each kind of memory. Outcomes
/// and warnings have to be equal; they come back, for the test to see that they are what it is about.
#[track_caller]
fn as_on_the_cpu(
    config: Value,
    network: Option<Network>,
    requests: impl Fn() -> Vec<TestRequest>,
) -> (Vec<Outcome>, Vec<String>) {
    let run = |kind, memory: (u32, i64)| {
        let server = Server::new(memory);
        if let Some(network) = network {
            server.host.child("segmentation_3d", move |call| network(call, memory));
        }
        let model = server.load_config(kind, config.clone()).unwrap();
        let to_host = |request: TestRequest| {
            request.output_memory("MASK", HOST.0, HOST.1).output_memory("CONTOUR", HOST.0, HOST.1)
        };
        let answers = model.execute(requests().into_iter().map(to_host)).wait();
        let outcomes: Vec<Outcome> =
            answers.iter().map(|answer| answer.result().map(|response| response.outputs.clone())).collect();
        model.unload();
        let lines = server.host.log().into_iter();
        let mut warnings: Vec<_> =
            lines.filter(|line| line.level == TRITONSERVER_LOG_WARN).map(|line| line.message).collect();
        warnings.sort();
        server.check();
        (outcomes, warnings)
    };
    let expected = run(CPU_KIND, HOST);
    for memory in [HOST, GPU_0] {
        assert!(run(GPU_KIND, memory) == expected, "the network's answers in {memory:?}");
    }
    expected
}

/// The bytes of MASK.
#[track_caller]
fn mask(outcome: &Outcome) -> &[u8] {
    let outputs = outcome.as_ref().unwrap_or_else(|e| panic!("{e}"));
    outputs[0].bytes.as_ref().unwrap()
}

fn has_several_values(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| *byte != bytes[0])
}

#[test]
fn int16_volumes() {
    let mut config = config("TYPE_UINT8", json!({}));
    config["input"][0]["data_type"] = json!("TYPE_INT16");
    let shape = [2, 11, 9, 33];
    let bytes: Vec<u8> = voxels(shape.iter().product::<i64>() as usize, 9)
        .iter()
        .flat_map(|v| (*v as i16).to_ne_bytes())
        .collect();
    let volume = || TestInput::new("INPUT0", TRITONSERVER_TYPE_INT16, &shape, bytes.clone());
    let (outcomes, _) = as_on_the_cpu(config, None, || {
        vec![
            TestRequest::new([volume()]),
            TestRequest::new([volume().memory(PINNED.0, PINNED.1).split(&[1001])]),
        ]
    });
    assert!(outcomes.iter().all(|outcome| has_several_values(mask(outcome))));
}

/// Three classes in FP16, in bands that both labels have several components of.
fn three_classes(call: &mut ChildCall, memory: (u32, i64)) {
    let input = call.input("INPUT__0").unwrap();
    let values = || input.bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes));
    let scores = values().map(|_| 0.6).chain(values().map(|x| 1.0 - x)).chain(values());
    let bytes = scores.flat_map(|score| f16::from_f32(score).to_ne_bytes()).collect();
    let mut shape = input.shape.clone();
    shape[1] = 3;
    let output = ChildOutput::new("OUTPUT__0", TRITONSERVER_TYPE_FP16, &shape, bytes);
    call.respond(vec![output.preferring(memory.0, memory.1)]);
}

#[test]
fn three_classes_in_fp16() {
    for parameters in [
        json!({"applied_labels": text("1,2")}),
        json!({"applied_labels": text("1,2"), "independent": text("false"), "num_components": text("2")}),
        json!({"applied_labels": text(""), "connectivity": text("1")}),
    ] {
        let config = config("TYPE_UINT8", parameters);
        let (outcomes, _) = as_on_the_cpu(config, Some(three_classes), || vec![request(11)]);
        let mask = mask(&outcomes[0]);
        assert!([0, 1, 2].iter().all(|label| mask.contains(label)), "each class is there");
    }
}

#[test]
fn not_finite_voxels_are_answered_and_counted_in_one_warning() {
    let shape = [1, 11, 9, 33];
    let mut values = voxels(11 * 9 * 33, 12);
    for (at, value) in [(0, f32::NAN), (500, f32::INFINITY), (901, f32::NEG_INFINITY), (3266, f32::NAN)] {
        values[at] = value;
    }
    let (outcomes, warnings) = as_on_the_cpu(config("TYPE_UINT8", json!({})), None, || {
        vec![TestRequest::new([TestInput::fp32("INPUT0", &shape, &values)])]
    });
    assert!(outcomes[0].is_ok());
    assert!(warnings.iter().any(|line| line.contains('4')), "{warnings:?}");
}

#[test]
fn a_bad_request_among_good_ones_fails_alone_and_in_the_same_words() {
    let air = || TestInput::fp32("INPUT0", &[1, 4, 5, 6], &[-1000.0; 120]);
    let (outcomes, _) = as_on_the_cpu(config("TYPE_FP32", json!({})), None, || {
        vec![request(1), TestRequest::new([air()]), request(2), TestRequest::new([input([1, 0, 5, 6], 1)])]
    });
    let [one, no_foreground, two, no_voxel] = outcomes.as_slice() else { panic!("{}", outcomes.len()) };
    assert!(one.is_ok() && two.is_ok());
    assert!(no_foreground.is_err() && no_voxel.is_err());
}

fn wrong_shape(call: &mut ChildCall, memory: (u32, i64)) {
    let output = ChildOutput::fp32("OUTPUT__0", &[1, 2, 3, 4, 5], &[0.0; 120]);
    call.respond(vec![output.preferring(memory.0, memory.1)]);
}

fn not_a_number(call: &mut ChildCall, memory: (u32, i64)) {
    let [h, w, d] = SIZE;
    let count = (h * w * d) as usize;
    let scores: Vec<f32> = (0..2 * count).map(|at| if at % 7 == 0 { f32::NAN } else { at as f32 }).collect();
    let output = ChildOutput::fp32("OUTPUT__0", &[1, 2, h, w, d], &scores);
    call.respond(vec![output.preferring(memory.0, memory.1)]);
}

fn its_own_error(call: &mut ChildCall, _memory: (u32, i64)) {
    call.fail(TRITONSERVER_ERROR_INTERNAL, "the network's own words");
}

#[test]
fn networks_that_answer_wrongly() {
    let config = || config("TYPE_UINT8", json!({}));
    for (network, expected) in
        [(wrong_shape as Network, "[1,2,3,4,5]"), (its_own_error, "the network's own words")]
    {
        let (outcomes, _) = as_on_the_cpu(config(), Some(network), || vec![request(1)]);
        let error = outcomes[0].as_ref().unwrap_err().message.replace(", ", ",");
        assert!(error.contains(expected), "{error}");
    }
    let (outcomes, warnings) = as_on_the_cpu(config(), Some(not_a_number), || vec![request(1)]);
    assert!(has_several_values(mask(&outcomes[0])));
    assert!(warnings.iter().any(|line| line.contains("NaN")), "{warnings:?}");
}

#[test]
fn an_instance_on_another_gpu_uses_that_one() {
    let second = (TRITONSERVER_INSTANCEGROUPKIND_GPU, 1);
    let expected = expected(request(13));
    for network in [HOST, GPU_0, GPU_1] {
        let server = Server::new(network);
        let model = server.load(second).unwrap();
        for memory in [HOST, GPU_0, GPU_1] {
            let request = request(13).output_memory("MASK", memory.0, memory.1);
            assert!(outputs(&one(&model, request)) == expected, "{network:?} {memory:?}");
        }
        model.unload();
        server.check();
    }
}

#[test]
fn instances_beside_each_other_on_one_gpu_and_on_two_answer_each_with_its_own() {
    let second = (TRITONSERVER_INSTANCEGROUPKIND_GPU, 1);
    let expected: Vec<_> = (0..6).map(|seed| expected(request(seed))).collect();
    let server = Server::new(GPU_0);
    let mut spec = spec(config("TYPE_FP32", json!({"max_in_flight": text("2")})));
    spec.instances = vec![GPU_KIND, GPU_KIND, second];
    let model = server.load_spec(spec).unwrap();
    for _ in 0..5 {
        let running: Vec<_> = (0..3)
            .map(|at| model.execute_on(at, [request(2 * at as u32), request(2 * at as u32 + 1)]))
            .collect();
        let answers = running.iter().flat_map(|execution| execution.wait());
        for (answer, expected) in answers.zip(&expected) {
            assert!(outputs(&answer) == *expected);
        }
    }
    model.unload();
    server.check();
}

#[test]
fn a_mask_on_the_gpu_is_compared_with_a_shadow_models() {
    let found = |kind, memory| {
        let server = Server::new(memory);
        server.host.child("other", |call| {
            let [h, w, d] = SIZE;
            call.respond(vec![ChildOutput::fp32("MASK", &[1, 1, h, w, d], &vec![0.0; (h * w * d) as usize])]);
        });
        // While the network works, the input is copied for the other model; a request whose network is faster is not compared.
        server.host.child("segmentation_3d", move |call| {
            std::thread::sleep(Duration::from_millis(50));
            network(call, memory);
        });
        let shadow = json!({"shadow_model": text("other"), "shadow_every": text("1")});
        let model = server.load_with(kind, "TYPE_UINT8", shadow).unwrap();
        let differs = |line: &LogLine| line.message.contains("differs from shadow model 'other'");
        let comparison = || server.host.log().into_iter().find(differs).map(|line| line.message);
        let mut requests = 0;
        let found = loop {
            outputs(&one(&model, request(14)));
            requests += 1;
            match comparison() {
                Some(line) => break line,
                None => assert!(requests < 200, "nothing was compared: {:?}", server.host.metrics()),
            }
        };
        model.unload();
        server.check();
        found
    };
    assert_eq!(found(GPU_KIND, GPU_0), found(CPU_KIND, HOST));
}
