//! Every call that can fail is made to fail once in each place where a typical life of a model makes it.
//! Nothing may leak, be freed twice, hang or panic, and the failure must come to light.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::child::*;
use common::faults::*;
use common::*;
use std::sync::Arc;
use std::time::Duration;
use triton_backend_api::*;
use triton_fake_host::ParameterValue;

/// Calls whose failure costs nobody anything: what they were for is not worth a request.
const TOLERATED: [&str; 12] = [
    "TRITONBACKEND_ModelInstanceReportStatistics",
    "TRITONBACKEND_ModelInstanceReportBatchStatistics",
    "TRITONBACKEND_RequestIsCancelled",
    "TRITONBACKEND_RequestTrace",
    "TRITONBACKEND_ResponseDelete",
    "TRITONSERVER_InferenceRequestCancel",
    "TRITONSERVER_InferenceRequestDelete",
    "TRITONSERVER_InferenceResponseDelete",
    "TRITONSERVER_InferenceTraceSpawnChildTrace",
    "TRITONSERVER_LogMessage",
    "TRITONSERVER_MessageDelete",
    "TRITONSERVER_ResponseAllocatorDelete",
];

/// Calls whose failure comes to light or not, by what they were for: the number of a correlation id that is a
/// string, the size of a batch that is only wanted for the statistics.
fn either(symbol: &str, batched: bool) -> bool {
    const SIZE: [&str; 3] = [
        "TRITONBACKEND_RequestInputCount",
        "TRITONBACKEND_RequestInputByIndex",
        "TRITONBACKEND_InputProperties",
    ];
    symbol == "TRITONBACKEND_RequestCorrelationId" || batched && SIZE.contains(&symbol)
}

/// A request that uses whatever there is.
fn everything(author: &Author, request: &Request, reply: &mut Reply) -> Result<()> {
    triton_backend_api::log!(Info, "request '{}'", request.id()?);
    if request.is_cancelled() || request.requested_outputs()?.is_empty() {
        return Err(Error::cancelled("nobody wants it"));
    }
    request.input_by_index(request.input_count()? - 1)?.for_host_policy("numa")?.bytes()?;
    request.parameters()?;
    if request.id()? == "impatient" {
        let waited =
            author.server.inference_request("slow", -1)?.send()?.wait(Duration::from_millis(1), || false);
        match waited {
            Err(e) if e.code() == ErrorCode::Unavailable && e.message().contains("did not answer") => (),
            other => other.map(|_| ())?,
        }
    }
    if !author.server.model_is_ready("child", -1)? {
        return Err(Error::unavailable("no child"));
    }
    reply.mark_compute_start();
    let mut call = call(author, request)?;
    call.set_priority(1)?;
    call.forward_parameters(request)?;
    let response = call.send()?.wait(LONG, || false)?;
    reply.mark_compute_end();
    response.model()?;
    if (response.id()?, response.parameters()?.len()) != (request.id()?, 1) {
        return Err(Error::internal("the child lost something"));
    }
    reply.set_parameter("text", "a")?;
    reply.set_parameter("number", 1)?;
    reply.set_parameter("truth", true)?;
    reply.set_parameter("fraction", 0.5)?;
    copy(&response, reply)
}

fn with_parameters(request: TestRequest) -> TestRequest {
    request
        .parameter("text", ParameterValue::String("a".into()))
        .parameter("number", ParameterValue::Int(1))
        .parameter("truth", ParameterValue::Bool(true))
        .parameter("fraction", ParameterValue::Double(0.5))
}

/// The same, with all requests in one go.
fn as_a_batch(author: &Author, batch: &mut Batch) -> Result<()> {
    let (entries, mut execution) = batch.as_one_execution();
    execution.mark_compute_start();
    for entry in entries {
        if let Err(e) = everything(author, &entry.request, &mut entry.reply) {
            entry.fail(e);
        }
    }
    execution.mark_compute_end();
    Ok(())
}

/// Loads, executes three requests, unloads; with the nth call of a symbol failing, if one is to.
fn live(way: Way, batched: bool, fault: Option<(&'static str, usize)>) -> Life {
    let host = FakeHost::new();
    host.child("child", |call| {
        call.set_parameter("kept", ParameterValue::Int(1));
        let outputs = doubled(call);
        call.respond(outputs);
    });
    // Longer than the author waits, also where the machine is busy; it learns nothing where cancelling it is what fails.
    let is_not_told = matches!(fault, Some(("TRITONSERVER_InferenceRequestCancel", _)));
    let limit = if is_not_told { Duration::from_secs(2) } else { LONG };
    host.child("slow", move |call| {
        call.wait_for_cancellation(limit);
    });
    if let Some((symbol, nth)) = fault {
        host.fail_next(symbol, nth);
    }
    let mut script = Script::new(everything);
    script.execute = batched.then(|| Arc::new(as_a_batch) as Arc<_>);
    script.complete = Arc::new(|config| Ok(Some(config.json().clone())));
    let mut texts = Vec::new();
    let entry_points = way.entry_points();
    texts.extend(host.initialize(&entry_points).err());
    texts.extend(host.backend_attributes(&entry_points).err());
    match way.try_load(&host, &script, |_| ()) {
        Err(e) => texts.push(e),
        Ok(model) => {
            texts.extend(model.ready().err());
            let requests = [
                with_parameters(request(&[1.0])).id("number").traced().correlation(Correlation::Number(7)),
                request(&[2.0]).id("impatient"),
                request(&[3.0]).id("text").correlation(Correlation::text("seven")),
            ];
            let execution = model.execute(requests);
            texts.extend(execution.result.clone().err());
            for answer in execution.wait() {
                match &answer.refused {
                    Some(_) => assert_eq!((answer.responses.len(), answer.released), (0, 0), "{fault:?}"),
                    None => assert_eq!((answer.responses.len(), answer.released), (1, 1), "{fault:?}"),
                }
                texts.extend(answer.result().err());
            }
            model.unload();
        }
    }
    let life = Life::ended(&host, script, texts);
    assert_eq!(host.faults_left(), 0, "{fault:?} never came");
    life
}

fn fail_everything_once(way: Way, batched: bool) {
    assert_eq!(live(way, batched, None).texts.len(), 3, "one line of the log a request");
    let failed = fail_each_call_once(
        &format!("{way:?}, batched {batched}"),
        |fault| live(way, batched, fault),
        |symbol| TOLERATED.contains(&symbol),
        |symbol| either(symbol, batched),
    );
    assert!(failed > 150, "{failed} failures are too few for a whole life");
}

#[test]
fn every_call_fails_once_under_an_instance_that_answers_while_execute_waits() {
    fail_everything_once(Way::Waiting, false);
}

#[test]
fn every_call_fails_once_under_a_true_batch() {
    fail_everything_once(Way::Waiting, true);
}

#[test]
fn every_call_fails_once_under_an_instance_that_takes_requests_over() {
    fail_everything_once(Way::Parallel, false);
}

#[test]
fn the_typical_life_makes_every_call_that_there_is() {
    let made = WAYS.into_iter().flat_map(|way| live(way, false, None).calls.into_keys());
    let made: Vec<_> = made.collect();
    let bindings = include_str!("../src/sys/bindings.rs");
    let declared = bindings.split("pub fn ").skip(1).map(|rest| rest.split('(').next().unwrap());
    let not_failing = [
        "TRITONSERVER_ErrorNew",
        "TRITONSERVER_ErrorDelete",
        "TRITONSERVER_ErrorCode",
        "TRITONSERVER_ErrorMessage",
        "TRITONSERVER_LogIsEnabled",
        "TRITONSERVER_InferenceResponseError",
    ];
    // Only on the way back from a failure: made to fail in tests of their own.
    let after_failures = ["TRITONBACKEND_ResponseDelete", "TRITONSERVER_InferenceTraceDelete"];
    let missing: Vec<_> = declared
        .filter(|name| !name.contains("Factory")) // faults_streams.rs makes these fail
        .filter(|name| !common::server_side::CALLS.contains(name))
        .filter(|name| !made.contains(name) && !not_failing.contains(name) && !after_failures.contains(name))
        .collect();
    assert_eq!(missing, Vec::<&str>::new(), "calls that no fault test makes fail");
}

#[test]
fn cleaning_up_after_a_failure_may_fail_too() {
    for way in WAYS {
        for (first, nth, second) in [
            ("TRITONBACKEND_ResponseNew", 3, "TRITONBACKEND_ResponseDelete"),
            ("TRITONSERVER_InferenceRequestSetReleaseCallback", 1, "TRITONSERVER_InferenceTraceDelete"),
            ("TRITONSERVER_InferenceRequestSetReleaseCallback", 1, "TRITONSERVER_InferenceRequestDelete"),
            ("TRITONSERVER_ServerInferAsync", 1, "TRITONSERVER_InferenceRequestDelete"),
            ("TRITONBACKEND_ModelSetConfig", 1, "TRITONSERVER_MessageDelete"),
            ("TRITONBACKEND_ModelSetState", 1, "TRITONSERVER_ResponseAllocatorDelete"),
            ("TRITONBACKEND_OutputBuffer", 1, "TRITONBACKEND_ResponseSend"),
            ("TRITONBACKEND_ResponseSend", 1, "TRITONSERVER_LogMessage"),
        ] {
            let host = FakeHost::new();
            host.child("child", |call| {
                call.set_parameter("kept", ParameterValue::Int(1));
                let outputs = doubled(call);
                call.respond(outputs);
            });
            let mut script = Script::new(everything);
            script.complete = Arc::new(|config| Ok(Some(config.json().clone())));
            host.fail_next(first, nth);
            let failing_log = usize::from(second == "TRITONSERVER_LogMessage");
            host.fail_next(second, 1 + 3 * failing_log);
            if let Ok(model) = way.try_load(&host, &script, |_| ()) {
                model.execute([request(&[1.0]).traced(), request(&[2.0]).traced(), request(&[3.0])]).wait();
            }
            assert_eq!(host.faults_left(), 0, "{way:?}: {first} and {second}");
            assert_eq!(host.violations(), Vec::<String>::new(), "{way:?}: {first} and {second}");
            script.assert_freed();
        }
    }
}
