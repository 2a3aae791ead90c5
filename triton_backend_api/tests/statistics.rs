//! Statistics: what is counted, in which order, and how much of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::*;
use std::sync::Arc;
use triton_backend_api::*;

#[test]
fn rule_4_the_batch_size_counts_samples_and_the_times_are_in_order() {
    both_ways(|host, way| {
        let pause = || std::thread::sleep(std::time::Duration::from_millis(15));
        let script = Script::new(move |_, request, reply| {
            let shape = request.input("INPUT0")?.shape().to_vec();
            pause();
            reply.mark_compute_start();
            pause();
            pause();
            reply.mark_compute_end();
            pause();
            reply.output("OUTPUT0", DataType::Fp32, &shape)?.bytes_mut()?.fill(0);
            Ok(())
        });
        let rows =
            |rows: i64| TestRequest::new([TestInput::fp32("INPUT0", &[rows, 1], &vec![0.0; rows as usize])]);
        let answers = way.load(host, &script).execute([rows(3), rows(1)]).wait();
        assert_done(&answers);
        for answer in &answers {
            let [start, compute_start, compute_end, end] = answer.statistics[0].times;
            assert!(compute_start - start >= 15_000_000, "compute_input");
            assert!(compute_end - compute_start >= 30_000_000, "compute_infer");
            assert!(end - compute_end >= 15_000_000, "compute_output");
        }
        let mut sizes: Vec<_> = host.batch_statistics().iter().map(|report| report.batch_size).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 3], "each request is an execution of its own");
    });
}

#[test]
fn rule_4_without_a_batch_axis_a_request_is_one_sample() {
    both_ways(|host, way| {
        let spec = |spec: &mut ModelSpec| spec.config["max_batch_size"] = 0.into();
        let model = way.try_load(host, &Script::new(echo), spec).unwrap();
        let input = TestInput::fp32("INPUT0", &[5], &[0.0; 5]);
        assert_done(&model.execute([TestRequest::new([input])]).wait());
        assert_eq!(host.batch_statistics()[0].batch_size, 1);
    });
}

#[test]
fn rule_4_a_failure_is_counted_as_one_and_statistics_that_fail_cost_no_answer() {
    both_ways(|host, way| {
        let model = way.load(host, &Script::new(|_, _, _| Err(Error::internal("always"))));
        let answers = model.execute(three()).wait();
        assert_done(&answers);
        assert!(answers.iter().all(|answer| !answer.statistics[0].success));
        assert!(host.batch_statistics().is_empty(), "failures are no executions");
        drop(model);
        let model = way.load(host, &Script::new(echo));
        host.fail_next("TRITONBACKEND_ModelInstanceReportStatistics", 1);
        host.fail_next("TRITONBACKEND_ModelInstanceReportBatchStatistics", 1);
        let answers = model.execute([request(&[1.0])]).wait();
        assert!(answers[0].result().is_ok() && answers[0].released == 1);
    });
}

/// Doubles all requests of a batch in one go; a negative number fails its request.
fn double_all(batch: &mut Batch) -> Result<()> {
    let mut inputs = Vec::new();
    let (entries, mut execution) = batch.as_one_execution();
    for entry in entries.iter_mut() {
        let values =
            entry.request.input("INPUT0").and_then(|input| Ok(input.elements::<f32>()?.into_owned()));
        match values {
            Ok(values) if values[0] < 0.0 => entry.fail(Error::invalid_arg("negative")),
            Ok(values) => inputs.push(values),
            Err(e) => entry.fail(e),
        }
    }
    execution.mark_compute_start();
    let mut doubled = inputs.iter().map(|values| values.iter().map(|value| value * 2.0).collect::<Vec<_>>());
    execution.mark_compute_end();
    for entry in entries.iter_mut().filter(|entry| entry.is_open()) {
        let values = doubled.next().unwrap();
        let shape = [1, values.len() as i64];
        entry.reply.output("OUTPUT0", DataType::Fp32, &shape)?.bytes_mut()?.copy_from_slice(&bytes(&values));
    }
    Ok(())
}

#[test]
fn rule_4_a_true_batch_is_one_execution_with_one_set_of_times() {
    let host = FakeHost::new();
    let mut script = Script::new(echo);
    script.execute = Some(Arc::new(|_, batch| {
        assert!((batch.len(), batch.is_empty()) == (3, false));
        double_all(batch)
    }));
    let model = Way::Waiting.load(&host, &script);
    let answers = model.execute([request(&[1.0, 2.0]), request(&[-1.0]), request(&[3.0])]).wait();
    assert_done(&answers);
    assert_eq!(answers[0].bytes("OUTPUT0"), Some(bytes(&[2.0, 4.0])));
    assert_eq!(error(&answers[1]), HostError::new(abi::TRITONSERVER_ERROR_INVALID_ARG, "negative"));
    assert_eq!(answers[2].bytes("OUTPUT0"), Some(bytes(&[6.0])));
    let reports = host.batch_statistics();
    assert_eq!(reports.iter().map(|report| report.batch_size).collect::<Vec<_>>(), [2]);
    assert_eq!(answers[0].statistics[0].times[..3], answers[2].statistics[0].times[..3]);
    drop(model);
    host.check();
}

#[test]
fn rule_4_a_batch_that_fails_as_a_whole_answers_all_with_its_error() {
    let host = FakeHost::new();
    let mut script = Script::new(echo);
    script.execute = Some(Arc::new(|_, batch| {
        batch.as_one_execution();
        Err(Error::unavailable("no room"))
    }));
    let answers = Way::Waiting.load(&host, &script).execute(three()).wait();
    assert_done(&answers);
    assert!(answers.iter().all(|answer| error(answer).code == abi::TRITONSERVER_ERROR_UNAVAILABLE));
    assert!(host.batch_statistics().is_empty());
    host.check();
}
