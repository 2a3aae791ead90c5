//! Statistics of responses: each response of a decoupled model is counted, as what it was and with its own times.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::*;
use std::time::Duration;
use triton_backend_api::*;
use triton_fake_host::ResponseStatistics;

const PAUSE: Duration = Duration::from_millis(10);

/// Two responses, and whatever the id says in the end.
fn infer(_: &Author, request: &Request, reply: &mut Reply) -> Result<()> {
    for value in [1.0f32, 2.0] {
        std::thread::sleep(PAUSE);
        let mut output = reply.output("OUTPUT0", DataType::Fp32, &[1])?;
        std::thread::sleep(PAUSE * 2);
        output.write(&[value])?;
        reply.send_more()?;
    }
    end(&request.id()?)
}

/// The same with a stream, which outlives its request.
fn start(_: &Author, request: OwnedRequest, reply: OwnedReply) {
    let id = request.id().unwrap();
    let mut stream = reply.into_stream().unwrap();
    drop(request);
    for value in [1.0f32, 2.0] {
        std::thread::sleep(PAUSE);
        let mut output = stream.output("OUTPUT0", DataType::Fp32, &[1]).unwrap();
        std::thread::sleep(PAUSE * 2);
        output.write(&[value]).unwrap();
        stream.send().unwrap();
    }
    stream.finish(end(&id));
}

fn end(id: &str) -> Result<()> {
    match id {
        "fails" => Err(Error::unavailable("not now")),
        "cancelled" => Err(Error::cancelled("nobody wants it")),
        _ => Ok(()),
    }
}

/// The answer to a request of that id, in each way that a decoupled model can answer.
fn each_way(id: &str, test: impl Fn(&Answer)) {
    each_way_on(|_| (), id, |answer, _| test(answer));
}

fn each_way_on(prepare: impl Fn(&FakeHost), id: &str, test: impl Fn(&Answer, &FakeHost)) {
    for (way, script) in [
        (Way::Waiting, Script::new(infer)),
        (Way::Parallel, Script::new(infer)),
        (Way::Parallel, Script::start(start)),
    ] {
        let host = FakeHost::new();
        prepare(&host);
        let model = way.try_load(&host, &script, decoupled).unwrap();
        let answer = model.execute([request(&[1.0]).id(id)]).wait().remove(0);
        assert_eq!((answer.is_final(), answer.released), (true, 1), "{answer:?}");
        test(&answer, &host);
        model.unload();
        script.assert_freed();
        host.check();
    }
}

#[test]
fn each_response_of_a_stream_is_counted_with_its_own_times() {
    each_way("plain", |answer| {
        let [first, second, _] = answer.response_statistics.as_slice() else { panic!("{answer:?}") };
        for report in [first, second] {
            let output_start = report.output_start.unwrap();
            assert!(output_start - report.start >= 10_000_000, "what came before the output: {report:?}");
            assert!(report.end - output_start >= 20_000_000, "the output: {report:?}");
            assert_eq!(report.error, None);
        }
        assert!(second.start >= first.end, "{answer:?}");
    });
}

#[test]
fn the_word_that_none_follows_is_counted_as_an_empty_response() {
    each_way("plain", |answer| {
        let last = answer.response_statistics.last().unwrap();
        assert_eq!((last.output_start, &last.error), (None, &None));
        assert!(answer.ended_without_response && answer.responses.len() == 2);
    });
}

#[test]
fn a_stream_that_fails_is_counted_with_the_code_of_its_error() {
    for (id, code) in
        [("fails", abi::TRITONSERVER_ERROR_UNAVAILABLE), ("cancelled", abi::TRITONSERVER_ERROR_CANCELLED)]
    {
        each_way(id, |answer| {
            let [.., last] = answer.response_statistics.as_slice() else { panic!("{answer:?}") };
            assert_eq!(answer.response_statistics.len(), 3);
            assert_eq!(last.error, answer.responses[2].error);
            assert_eq!((last.error.as_ref().unwrap().code, last.output_start), (code, None));
        });
    }
}

#[test]
fn a_response_is_counted_before_its_client_has_it() {
    each_way("fails", |answer| {
        let before: Vec<_> = answer.response_statistics.iter().map(|report| report.sent_before).collect();
        assert_eq!(before, [0, 1, 2]);
    });
}

#[test]
fn a_last_response_that_holds_something_is_counted_once_and_not_as_empty() {
    both_ways(|host, way| {
        let model = way.try_load(host, &Script::new(echo), decoupled).unwrap();
        let answer = model.execute([request(&[1.0])]).wait().remove(0);
        let [ResponseStatistics { output_start: Some(_), error: None, .. }] =
            answer.response_statistics.as_slice()
        else {
            panic!("{answer:?}")
        };
        assert!(!answer.ended_without_response);
    });
}

#[test]
fn an_error_that_no_response_can_carry_is_counted_all_the_same() {
    let prepare = |host: &FakeHost| host.fail_next("TRITONBACKEND_ResponseNewFromFactory", 3);
    each_way_on(prepare, "fails", |answer, _| {
        assert!(answer.ended_without_response && answer.responses.len() == 2);
        let last = answer.response_statistics.last().unwrap();
        assert_eq!(last.error, Some(HostError::new(abi::TRITONSERVER_ERROR_UNAVAILABLE, "not now")));
    });
}

#[test]
fn requests_that_are_answered_one_after_another_do_not_count_each_other_s_time() {
    let host = FakeHost::new();
    let script = Script::new(infer);
    let model = Way::Waiting.try_load(&host, &script, decoupled).unwrap();
    let answers = model.execute([request(&[1.0]), request(&[2.0])]).wait();
    let [first, second] = [&answers[0], &answers[1]].map(|answer| &answer.response_statistics);
    assert!(second[0].start >= first[2].end, "{answers:?}");
    model.unload();
    host.check();
}

#[test]
fn responses_of_a_model_that_is_not_decoupled_are_not_counted_apart() {
    both_ways(|host, way| {
        let answer = way.load(host, &Script::new(echo)).execute([request(&[1.0])]).wait().remove(0);
        assert_eq!((answer.responses.len(), answer.response_statistics.len()), (1, 0));
        let calls: Vec<_> =
            host.calls().into_keys().filter(|name| name.contains("ResponseStatistics")).collect();
        assert_eq!(calls, Vec::<&str>::new());
    });
}

#[test]
fn a_server_without_statistics_of_responses_is_answered_to_in_silence() {
    let prepare = |host: &FakeHost| host.without_younger_calls();
    each_way_on(prepare, "plain", |answer, host| {
        assert!(answer.response_statistics.is_empty() && answer.responses.len() == 2);
        assert_eq!(answer.statistics.len(), 1, "those of the request are older");
        let log = host.log();
        assert!(log.iter().all(|line| !line.message.contains("Statistics")), "{log:?}");
    });
}

#[test]
fn a_response_of_which_not_all_can_be_told_is_not_counted_and_is_sent() {
    for symbol in [
        "TRITONBACKEND_ModelInstanceResponseStatisticsNew",
        "TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance",
        "TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory",
        "TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart",
        "TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart",
        "TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd",
        "TRITONBACKEND_ModelInstanceResponseStatisticsSetError",
        "TRITONBACKEND_ModelInstanceReportResponseStatistics",
    ] {
        let prepare = |host: &FakeHost| host.fail_next(symbol, 1);
        each_way_on(prepare, "fails", |answer, host| {
            assert_eq!(host.faults_left(), 0, "{symbol}");
            assert_eq!((answer.response_statistics.len(), answer.responses.len()), (2, 3), "{symbol}");
        });
    }
}
