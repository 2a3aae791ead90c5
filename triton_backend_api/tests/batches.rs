//! True batches: inputs put together along the batch axis, results taken apart in the order of the requests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::*;
use std::sync::{Arc, Mutex};
use triton_backend_api::*;

fn batching(execute: impl Fn(&mut Batch) -> Result<()> + Send + Sync + 'static) -> Script {
    let mut script = Script::new(echo);
    script.execute = Some(Arc::new(move |_, batch| execute(batch)));
    script
}

/// OUTPUT0 is A + B, for all requests at once; the number of rows computed goes to `seen`.
fn adding(seen: &Arc<Mutex<Vec<usize>>>) -> Script {
    let seen = seen.clone();
    batching(move |batch| {
        let (entries, mut execution) = batch.as_one_execution();
        let inputs = Concatenation::of(entries, &["A", "B"])?;
        seen.lock().unwrap().push(inputs.rows());
        if inputs.rows() == 0 {
            return Ok(());
        }
        execution.mark_compute_start();
        let (a, b) = (inputs.elements::<f32>("A")?, inputs.elements::<f32>("B")?);
        assert_eq!((a.len(), a.as_ptr() as usize % 64), (inputs.rows() * 2, 0));
        let sum: Vec<f32> = a.iter().zip(b).map(|(a, b)| a + b).collect();
        execution.mark_compute_end();
        inputs.split(entries, "OUTPUT0", inputs.shape("A")?, &sum)
    })
}

/// Rows of two numbers each, counting up from `first`, and B ten times as much.
fn pair(first: f32, rows: usize) -> TestRequest {
    let values: Vec<f32> = (0..2 * rows).map(|n| first + n as f32).collect();
    let tens: Vec<f32> = values.iter().map(|value| value * 10.0).collect();
    let shape = [rows as i64, 2];
    TestRequest::new([TestInput::fp32("A", &shape, &values).split(&[3]), TestInput::fp32("B", &shape, &tens)])
}

fn sums(first: f32, rows: usize) -> Option<Vec<u8>> {
    Some(bytes(&(0..2 * rows).map(|n| (first + n as f32) * 11.0).collect::<Vec<_>>()))
}

#[test]
fn a_batch_is_one_tensor_and_each_request_gets_its_own_rows_back() {
    let host = FakeHost::new();
    let seen = Arc::default();
    let model = Way::Waiting.load(&host, &adding(&seen));
    let answers = model.execute([pair(1.0, 1), pair(100.0, 3), pair(-5.0, 2)]).wait();
    assert_done(&answers);
    for (answer, (first, rows)) in answers.iter().zip([(1.0, 1), (100.0, 3), (-5.0, 2)]) {
        assert_eq!(answer.bytes("OUTPUT0"), sums(first, rows));
        assert_eq!(answer.result().unwrap().outputs[0].shape, [rows as i64, 2]);
    }
    assert_eq!(*seen.lock().unwrap(), [6]);
    assert_eq!(host.batch_statistics().iter().map(|report| report.batch_size).collect::<Vec<_>>(), [6]);
    drop(model);
    host.check();
}

#[test]
fn a_request_that_does_not_fit_fails_alone_and_the_others_keep_their_rows() {
    let gpu = abi::TRITONSERVER_MEMORY_GPU;
    let odd: [(TestRequest, &str); 6] = [
        (TestRequest::new([TestInput::fp32("A", &[1, 2], &[1.0, 2.0])]), "no input 'B'"),
        (
            TestRequest::new([
                TestInput::fp32("A", &[1, 3], &[0.0; 3]),
                TestInput::fp32("B", &[1, 2], &[0.0; 2]),
            ]),
            "input 'A' of shape [1, 3]: it is FP32, while other requests of its batch have FP32 [2] a row",
        ),
        (
            TestRequest::new([
                TestInput::new("A", abi::TRITONSERVER_TYPE_INT32, &[1, 2], vec![0; 8]),
                TestInput::fp32("B", &[1, 2], &[0.0; 2]),
            ]),
            "it is INT32, while",
        ),
        (
            TestRequest::new([
                TestInput::fp32("A", &[1, 2], &[0.0; 2]),
                TestInput::fp32("B", &[2, 2], &[0.0; 4]),
            ]),
            "input 'B' of shape [2, 2]: input 'A' has another number of rows",
        ),
        (
            TestRequest::new([TestInput::fp32("A", &[], &[0.0]), TestInput::fp32("B", &[1, 2], &[0.0; 2])]),
            "it has no batch axis",
        ),
        (
            TestRequest::new([
                TestInput::fp32("A", &[1, 2], &[0.0; 2]).memory(gpu, 0),
                TestInput::fp32("B", &[1, 2], &[0.0; 2]),
            ]),
            "lies in memory of GPU 0",
        ),
    ];
    let host = FakeHost::new();
    let model = Way::Waiting.load(&host, &adding(&Arc::default()));
    for (odd, why) in odd {
        let answers = model.execute([pair(1.0, 2), odd, pair(7.0, 1)]).wait();
        assert_done(&answers);
        assert!(error(&answers[1]).message.contains(why), "{} has no {why}", error(&answers[1]));
        assert_eq!((answers[0].bytes("OUTPUT0"), answers[2].bytes("OUTPUT0")), (sums(1.0, 2), sums(7.0, 1)));
    }
    drop(model);
    host.check();
}

#[test]
fn who_does_not_ask_for_an_output_does_not_get_it() {
    let host = FakeHost::new();
    let model = Way::Waiting.load(&host, &adding(&Arc::default()));
    let answers = model.execute([pair(1.0, 2), pair(3.0, 1).output("ANOTHER")]).wait();
    assert_eq!(answers[0].bytes("OUTPUT0"), sums(1.0, 2));
    assert!(answers[1].result().unwrap().outputs.is_empty());
    drop(model);
    host.check();
}

#[test]
fn an_output_that_cannot_be_written_fails_its_request_alone() {
    let host = FakeHost::new();
    let model = Way::Waiting.load(&host, &adding(&Arc::default()));
    let far = pair(3.0, 1).output_memory("OUTPUT0", abi::TRITONSERVER_MEMORY_GPU, 1);
    let answers = model.execute([pair(1.0, 2), far, pair(7.0, 1)]).wait();
    assert_done(&answers);
    assert!(error(&answers[1]).message.contains("output 'OUTPUT0' lies in memory of GPU 1"));
    assert_eq!((answers[0].bytes("OUTPUT0"), answers[2].bytes("OUTPUT0")), (sums(1.0, 2), sums(7.0, 1)));
    drop(model);
    host.check();
}

#[test]
fn a_batch_of_which_nothing_is_left_computes_nothing() {
    let host = FakeHost::new();
    let seen = Arc::default();
    let model = Way::Waiting.load(&host, &adding(&seen));
    let answers = model.execute([request(&[1.0]), request(&[2.0])]).wait();
    assert_done(&answers);
    assert!(answers.iter().all(|answer| error(answer).message.contains("no input 'A'")));
    assert_eq!(*seen.lock().unwrap(), [0]);
    drop(model);
    host.check();
}

#[test]
fn results_of_another_shape_or_type_are_refused() {
    let host = FakeHost::new();
    let script = batching(|batch| {
        let (entries, _) = batch.as_one_execution();
        let inputs = Concatenation::of(entries, &["A", "B"])?;
        assert_eq!(inputs.elements::<i32>("A").unwrap_err().message(), "input 'A' is FP32, read as INT32");
        assert_eq!(inputs.shape("C").unwrap_err().code(), ErrorCode::NotFound);
        for (shape, values) in [(&[2, 2][..], 4), (&[3, 2], 5), (&[], 1), (&[-3, 2], 6)] {
            assert!(inputs.split(entries, "OUTPUT0", shape, &vec![0.0f32; values]).is_err(), "{shape:?}");
        }
        assert!(inputs.split(&mut entries[..1], "OUTPUT0", &[3, 2], &[0.0f32; 6]).is_err());
        inputs.split(entries, "OUTPUT0", &[3, 1], &[1i32, 2, 3]) // rows may be of any other size and type
    });
    let model = Way::Waiting.load(&host, &script);
    let answers = model.execute([pair(1.0, 2), pair(7.0, 1)]).wait();
    assert_done(&answers);
    assert_eq!(answers[0].bytes("OUTPUT0"), Some([1i32, 2].map(i32::to_ne_bytes).concat()));
    assert_eq!(answers[1].bytes("OUTPUT0"), Some(3i32.to_ne_bytes().to_vec()));
    drop(model);
    host.check();
}
