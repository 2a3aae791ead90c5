//! As `faults.rs`, for decoupled models: every call that can fail is made to fail once in each place where a stream of
//! responses makes it, and the client hears once that the stream has ended.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::faults::*;
use common::*;
use triton_backend_api::*;

/// Calls whose failure costs nobody anything.
const TOLERATED: [&str; 7] = [
    "TRITONBACKEND_ModelInstanceReportStatistics",
    "TRITONBACKEND_ModelInstanceReportBatchStatistics",
    "TRITONBACKEND_ResponseDelete",
    "TRITONBACKEND_ResponseFactoryDelete",
    "TRITONBACKEND_ResponseFactoryIsCancelled",
    "TRITONSERVER_MessageDelete",
    "TRITONSERVER_ResponseAllocatorDelete",
];
/// In the name of every call that counts a response; their failures cost nobody anything either.
const RESPONSE_STATISTICS: &str = "ResponseStatistics";

/// Two responses, and whatever `id` says in the end.
fn infer(_: &Author, request: &Request, reply: &mut Reply) -> Result<()> {
    let id = request.id()?;
    for value in [1.0f32, 2.0].into_iter().filter(|_| id != "none") {
        reply.output("OUTPUT0", DataType::Fp32, &[1])?.write(&[value])?;
        reply.send_more()?;
    }
    match id.as_str() {
        "full" => reply.set_parameter("last", true),
        "fails" => Err(Error::unavailable("as it should")),
        _ => Ok(()),
    }
}

/// The same with a stream, which outlives its request.
fn start(_: &Author, request: OwnedRequest, reply: OwnedReply) {
    let Ok(mut stream) = reply.into_stream() else { return };
    let result = fill(request, &mut stream);
    stream.finish(result);
}

fn fill(request: OwnedRequest, stream: &mut ResponseStream) -> Result<()> {
    let id = request.id()?;
    for value in [1.0f32, 2.0].into_iter().filter(|_| id != "none") {
        stream.output("OUTPUT0", DataType::Fp32, &[1])?.write(&[value])?;
        stream.send()?;
    }
    drop(request);
    if stream.is_cancelled() {
        return Err(Error::cancelled("nobody wants it"));
    }
    match id.as_str() {
        "full" => stream.output_byte_strings("TEXT", &[1], &["last"]),
        "fails" => Err(Error::unavailable("as it should")),
        _ => Ok(()),
    }
}

/// Loads, executes four requests, unloads; with the nth call of a symbol failing, if one is to.
fn live(way: Way, streams: bool, fault: Option<(&'static str, usize)>) -> Life {
    let host = FakeHost::new();
    if let Some((symbol, nth)) = fault {
        host.fail_next(symbol, nth);
    }
    let script = if streams { Script::start(start) } else { Script::new(infer) };
    let mut errors = Vec::new();
    match way.try_load(&host, &script, decoupled) {
        Err(e) => errors.push(e),
        Ok(model) => {
            let requests = ["plain", "full", "fails", "none"].map(|id| request(&[1.0]).id(id));
            let execution = model.execute(requests);
            errors.extend(execution.result.clone().err());
            for answer in execution.wait() {
                let finals = answer.responses.iter().filter(|response| response.is_final).count()
                    + usize::from(answer.ended_without_response);
                match &answer.refused {
                    Some(_) => assert_eq!((finals, answer.released), (0, 0), "{fault:?}"),
                    None => assert_eq!((finals, answer.released), (1, 1), "{fault:?}"),
                }
                errors.extend(answer.responses.into_iter().filter_map(|response| response.error));
            }
            model.unload();
        }
    }
    let life = Life::ended(&host, script, errors);
    assert_eq!(host.faults_left(), 0, "{fault:?} never came");
    life
}

fn fail_everything_once(way: Way, streams: bool) {
    let what = format!("{way:?}, streams {streams}");
    let failed = fail_each_call_once(
        &what,
        |fault| live(way, streams, fault),
        |symbol| TOLERATED.contains(&symbol) || symbol.contains(RESPONSE_STATISTICS),
        |_| false,
    );
    assert!(failed > 60, "{failed} failures are too few for a whole life");
}

#[test]
fn every_call_fails_once_under_streams_that_are_sent_while_execute_waits() {
    fail_everything_once(Way::Waiting, false);
}

#[test]
fn every_call_fails_once_under_streams_of_requests_that_are_taken_over() {
    fail_everything_once(Way::Parallel, false);
}

#[test]
fn every_call_fails_once_under_streams_that_outlive_their_requests() {
    fail_everything_once(Way::Parallel, true);
}

#[test]
fn the_streams_make_every_call_that_streams_can_make() {
    let made: Vec<_> = live(Way::Parallel, true, None).calls.into_keys().collect();
    let bindings = include_str!("../src/sys/bindings.rs");
    let declared = bindings.split("pub fn ").skip(1).map(|rest| rest.split('(').next().unwrap());
    let younger =
        bindings.split("pub type ").skip(1).filter_map(|rest| rest.split(' ').next()?.strip_suffix("_late"));
    let of_streams = |name: &str| name.contains("Factory") || name.contains(RESPONSE_STATISTICS);
    let missing: Vec<_> =
        declared.chain(younger).filter(|name| of_streams(name) && !made.contains(name)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "calls that no fault test makes fail");
}

#[test]
fn two_failures_in_a_row_still_end_the_stream() {
    for (first, nth, second, nth_second) in [
        // No response to say the error in: the flags alone.
        ("TRITONBACKEND_ResponseNewFromFactory", 1, "TRITONBACKEND_ResponseNewFromFactory", 2),
        ("TRITONBACKEND_ResponseSend", 1, "TRITONBACKEND_ResponseNewFromFactory", 2),
        ("TRITONBACKEND_ResponseSend", 1, "TRITONBACKEND_ResponseSend", 2),
        ("TRITONBACKEND_ResponseFactorySendFlags", 1, "TRITONSERVER_LogMessage", 1),
    ] {
        let host = FakeHost::new();
        host.fail_next(first, nth);
        host.fail_next(second, nth_second);
        let script = Script::start(start);
        let model = Way::Parallel.try_load(&host, &script, decoupled).unwrap();
        let answer = model.execute([request(&[1.0]).id("plain")]).wait().remove(0);
        assert_eq!((answer.is_final(), answer.released), (true, 1), "{first}, {second}");
        model.unload();
        assert_eq!(host.faults_left(), 0, "{first}, {second}");
        script.assert_freed();
        host.check();
    }
}
