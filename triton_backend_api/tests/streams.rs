//! Streams: several responses to one request, and that they end once whatever happens.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::*;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use triton_backend_api::*;

/// One response a number of INPUT0; a negative one is an error, 99 a panic.
fn count(_: &Author, request: &Request, reply: &mut Reply) -> Result<()> {
    for value in request.input("INPUT0")?.elements::<f32>()?.iter() {
        assert!(*value != 99.0, "ninety-nine");
        if *value < 0.0 {
            return Err(Error::invalid_arg("negative"));
        }
        reply.output("OUTPUT0", DataType::Fp32, &[1])?.write(&[*value])?;
        reply.set_parameter("value", f64::from(*value))?;
        reply.send_more()?;
    }
    Ok(())
}

fn load<'h>(host: &'h FakeHost, way: Way, script: &Script) -> LoadedModel<'h> {
    way.try_load(host, script, decoupled).unwrap()
}

fn answer(host: &FakeHost, way: Way, script: &Script, values: &[f32]) -> Answer {
    let answer = load(host, way, script).execute([request(values)]).wait().remove(0);
    assert_eq!(answer.released, 1);
    script.assert_freed();
    answer
}

/// The number in each response that is no error, and the last error.
fn told(answer: &Answer) -> (Vec<f32>, Option<HostError>) {
    let number = |bytes: &[u8]| f32::from_ne_bytes(bytes.try_into().unwrap());
    let outputs = answer.responses.iter().flat_map(|response| &response.outputs);
    let error = answer.responses.last().and_then(|last| last.error.clone());
    (outputs.map(|output| number(output.bytes.as_deref().unwrap())).collect(), error)
}

/// The author has let go of its request; the glue does a moment later, when `start` has returned.
fn after_the_release(execution: &triton_fake_host::Execution) -> Answer {
    assert!(soon(|| execution.answers()[0].released > 0), "{:?}", execution.answers());
    execution.answers().remove(0)
}

#[test]
fn infer_sends_several_responses_and_says_that_no_other_follows() {
    both_ways(|host, way| {
        let answer = answer(host, way, &Script::new(count), &[1.0, 2.0, 3.0]);
        assert_eq!(told(&answer), (vec![1.0, 2.0, 3.0], None));
        assert!(answer.ended_without_response && answer.responses.iter().all(|response| !response.is_final));
        assert_eq!(answer.statistics.iter().map(|report| report.success).collect::<Vec<_>>(), [true]);
    });
}

#[test]
fn what_was_filled_last_is_the_last_response() {
    both_ways(|host, way| {
        let script = Script::new(|author, request, reply| {
            count(author, request, reply)?;
            reply.output("OUTPUT0", DataType::Fp32, &[1])?.write(&[7.0f32])
        });
        let answer = answer(host, way, &script, &[1.0]);
        assert_eq!(told(&answer), (vec![1.0, 7.0], None));
        assert!(!answer.ended_without_response && answer.responses[1].is_final);
    });
}

#[test]
fn a_decoupled_model_may_answer_with_one_response_or_none() {
    both_ways(|host, way| {
        let none = answer(host, way, &Script::new(|_, _, _| Ok(())), &[1.0]);
        assert!(none.ended_without_response && none.responses.is_empty());
        let one = answer(host, way, &Script::new(echo), &[1.0]);
        assert_eq!(one.bytes("OUTPUT0"), Some(bytes(&[1.0])));
        assert!(one.responses[0].is_final && !one.ended_without_response);
    });
}

#[test]
fn a_failure_ends_the_stream_with_its_error() {
    both_ways(|host, way| {
        let answer = answer(host, way, &Script::new(count), &[1.0, -1.0, 3.0]);
        assert_eq!(told(&answer).0, [1.0]);
        assert_eq!(told(&answer).1, Some(HostError::new(abi::TRITONSERVER_ERROR_INVALID_ARG, "negative")));
        assert!(answer.responses[1].is_final && answer.responses.len() == 2);
        assert!(!answer.statistics[0].success);
    });
}

#[test]
fn rule_8_a_panic_ends_the_stream_with_its_text() {
    both_ways(|host, way| {
        let answer = answer(host, way, &Script::new(count), &[1.0, 99.0]);
        let error = told(&answer).1.unwrap();
        assert_eq!((told(&answer).0, error.code), (vec![1.0], abi::TRITONSERVER_ERROR_INTERNAL));
        assert!(error.message.contains("ninety-nine"), "{error}");
    });
}

const NOT_ALLOWED: &str = "model 'under_test' answers each request with one response; several need \
                           'model_transaction_policy { decoupled: true }' in its configuration";

#[test]
fn a_model_that_is_not_decoupled_is_refused_a_second_response() {
    both_ways(|host, way| {
        let script = Script::new(|author, request, reply| {
            let refusal = count(author, request, reply).unwrap_err();
            assert_eq!((refusal.code(), refusal.message()), (ErrorCode::Unsupported, NOT_ALLOWED));
            Ok(()) // what was filled in is the answer
        });
        let answers = way.load(host, &script).execute([request(&[5.0])]).wait();
        assert_eq!(answers[0].bytes("OUTPUT0"), Some(bytes(&[5.0])));
    });
    let host = FakeHost::new();
    let script = Script::start(|_, _, reply| {
        assert_eq!(reply.into_stream().err().unwrap().message(), NOT_ALLOWED);
    });
    let answers = Way::Parallel.load(&host, &script).execute([request(&[5.0])]).wait();
    assert_eq!(error(&answers[0]), HostError::new(abi::TRITONSERVER_ERROR_UNSUPPORTED, NOT_ALLOWED));
    assert!(!answers[0].statistics[0].success);
    host.check();
}

/// A script whose author turns replies into streams and gives both halves to the test.
fn streaming() -> (Script, Receiver<(OwnedRequest, ResponseStream)>) {
    let (sender, receiver): (Sender<_>, _) = channel();
    let sender = Mutex::new(sender);
    let script = Script::start(move |_, request, reply| {
        let stream = reply.into_stream().unwrap();
        sender.lock().unwrap().send((request, stream)).unwrap();
    });
    (script, receiver)
}

fn send(stream: &mut ResponseStream, value: f32) {
    stream.output("OUTPUT0", DataType::Fp32, &[1]).unwrap().write(&[value]).unwrap();
    stream.send().unwrap();
}

#[test]
fn a_stream_outlives_its_request_and_goes_from_thread_to_thread() {
    let host = FakeHost::new();
    let (script, streams) = streaming();
    let model = load(&host, Way::Parallel, &script);
    let execution = model.execute([request(&[1.0]).output_misaligned("OUTPUT0", 3)]);
    let (request, mut stream) = streams.recv().unwrap();
    send(&mut stream, 1.0);
    drop(request);
    let so_far = after_the_release(&execution);
    assert_eq!((so_far.released, so_far.is_final(), execution.open()), (1, false, 1));
    assert!(so_far.statistics[0].success, "the request was done with when it was released");
    for value in [2.0, 3.0] {
        let next = std::thread::spawn(move || {
            send(&mut stream, value);
            stream
        });
        stream = next.join().unwrap();
    }
    stream.output_byte_strings("TEXT", &[1], &["end"]).unwrap();
    stream.set_parameter("last", true).unwrap();
    stream.finish(Ok(()));
    let answer = execution.wait().remove(0);
    assert_eq!(answer.responses.len(), 4);
    assert!(answer.responses[3].is_final && answer.responses[3].parameters.contains_key("last"));
    assert_eq!((answer.statistics.len(), answer.released), (1, 1));
    model.unload();
    script.assert_freed();
    host.check();
}

#[test]
fn statistics_of_a_request_that_is_still_there_count_how_its_stream_ended() {
    let host = FakeHost::new();
    let (script, streams) = streaming();
    let model = load(&host, Way::Parallel, &script);
    for result in [Ok(()), Err(Error::unavailable("not now"))] {
        let execution = model.execute([request(&[1.0])]);
        let (request, mut stream) = streams.recv().unwrap();
        send(&mut stream, 1.0);
        stream.finish(result.clone());
        let answer = execution.answers().remove(0);
        assert_eq!(
            answer.statistics.iter().map(|report| report.success).collect::<Vec<_>>(),
            [result.is_ok()]
        );
        drop(request);
        assert_eq!(execution.wait()[0].statistics.len(), 1, "and once only");
    }
    assert_eq!(host.batch_statistics().len(), 1, "failures are no executions");
    drop(model);
    host.check();
}

#[test]
fn a_stream_that_is_dropped_ends_with_an_error() {
    let host = FakeHost::new();
    let (script, streams) = streaming();
    let model = load(&host, Way::Parallel, &script);
    for request_first in [false, true] {
        let execution = model.execute([request(&[1.0])]);
        let (request, mut stream) = streams.recv().unwrap();
        send(&mut stream, 1.0);
        match request_first {
            true => {
                drop(request);
                after_the_release(&execution);
                drop(stream);
            }
            false => {
                drop(stream);
                drop(request);
            }
        }
        let answer = execution.wait().remove(0);
        let error = told(&answer).1.unwrap();
        assert!(answer.responses[1].is_final && error.message.contains("without an end"), "{error}");
        assert_eq!(answer.statistics[0].success, request_first);
    }
    model.unload();
    script.assert_freed();
    host.check();
}

#[test]
fn rule_8_a_panic_ends_a_stream_wherever_its_request_is() {
    let host = FakeHost::new();
    for keep_request in [true, false] {
        let script = Script::start(move |_, request, reply| {
            let mut stream = reply.into_stream().unwrap();
            let _kept = keep_request.then_some(request);
            send(&mut stream, 1.0);
            panic!("in the middle")
        });
        let answer = load(&host, Way::Parallel, &script).execute([request(&[1.0])]).wait().remove(0);
        let error = told(&answer).1.unwrap();
        assert!(answer.responses[1].is_final && error.message.contains("in the middle"), "{error}");
        script.assert_freed();
    }
    // On a thread of the author's nobody is left who knows the text.
    for keep_request in [true, false] {
        let script = Script::start(move |_, request, reply| {
            let mut stream = reply.into_stream().unwrap();
            let work = move || {
                let _kept = keep_request.then_some(request);
                send(&mut stream, 1.0);
                panic!("far away")
            };
            assert!(std::thread::spawn(work).join().is_err());
        });
        let answer = load(&host, Way::Parallel, &script).execute([request(&[1.0])]).wait().remove(0);
        assert!(answer.responses[1].is_final && told(&answer).1.unwrap().message.contains("without an end"));
    }
    host.check();
}

#[test]
fn a_cancellation_is_seen_by_a_stream_whose_request_is_gone() {
    let host = FakeHost::new();
    let (script, streams) = streaming();
    let model = load(&host, Way::Parallel, &script);
    let execution = model.execute([request(&[1.0])]);
    let (request, stream) = streams.recv().unwrap();
    drop(request);
    after_the_release(&execution);
    assert!(!stream.is_cancelled());
    execution.cancel(0);
    assert!(stream.is_cancelled());
    host.fail_next("TRITONBACKEND_ResponseFactoryIsCancelled", 1);
    assert!(!stream.is_cancelled(), "a server that cannot tell has not cancelled it");
    stream.finish(Err(Error::cancelled("given up")));
    assert_eq!(told(&execution.wait()[0]).1.unwrap().code, abi::TRITONSERVER_ERROR_CANCELLED);
    drop(model);
    host.check();
}

#[test]
fn a_reply_that_holds_something_does_not_become_a_stream() {
    let host = FakeHost::new();
    let script = Script::start(|_, _, mut reply| {
        reply.set_parameter("early", true).unwrap();
        assert_eq!(reply.into_stream().err().unwrap().code(), ErrorCode::Internal);
    });
    let answers = load(&host, Way::Parallel, &script).execute([request(&[1.0])]).wait();
    assert!(error(&answers[0]).message.contains("cannot become a stream"));
    host.check();
}

#[test]
fn rule_6_finalize_waits_for_a_stream_though_its_request_is_gone() {
    let host = FakeHost::new();
    let (mut script, streams) = streaming();
    script.max_in_flight = 1;
    let unloaded = Arc::new(AtomicBool::new(false));
    let set = unloaded.clone();
    script.dropped = Arc::new(move |what| set.store(what == "model", SeqCst));
    let model = load(&host, Way::Parallel, &script);
    let execution = model.execute([request(&[1.0])]);
    let (request, stream) = streams.recv().unwrap();
    drop(request);
    after_the_release(&execution);
    std::thread::scope(|scope| {
        let unload = scope.spawn(|| model.unload());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!unloaded.load(SeqCst), "a stream is in flight");
        stream.finish(Ok(()));
        unload.join().unwrap();
    });
    assert!(execution.wait()[0].is_final());
    script.assert_freed();
    host.check();
}

#[test]
fn rule_6_the_end_of_the_last_stream_may_unload_the_model_on_the_same_thread() {
    let host = FakeHost::new();
    let (script, streams) = streaming();
    let model = load(&host, Way::Parallel, &script);
    let execution = model.execute([request(&[1.0])]);
    let (request, stream) = streams.recv().unwrap();
    drop(request);
    after_the_release(&execution); // else the instance's own thread may be the last
    model.unload_when_idle(); // not now: the stream holds the model
    std::thread::spawn(move || stream.finish(Ok(()))).join().unwrap();
    assert!(execution.wait()[0].is_final());
    assert!(model.wait_until_unloaded(), "finalizing on the thread that ends the last stream hangs");
    drop(model);
    script.assert_freed();
    host.check();
}

#[test]
fn many_streams_at_once_keep_their_order() {
    let host = FakeHost::new();
    let mut script = Script::start(|_, request, reply| {
        let values = request.input("INPUT0").unwrap().elements::<f32>().unwrap().into_owned();
        let mut stream = reply.into_stream().unwrap();
        drop(request);
        values.iter().for_each(|value| send(&mut stream, *value));
        stream.finish(Ok(()));
    });
    script.max_in_flight = 4;
    let model = load(&host, Way::Parallel, &script);
    let all: Vec<Vec<f32>> = (0..12).map(|n| (0..n).map(|m| (n * 100 + m) as f32).collect()).collect();
    let answers = model.execute(all.iter().map(|values| request(values))).wait();
    for (answer, values) in answers.iter().zip(&all) {
        assert_eq!(told(answer), (values.clone(), None));
        assert!(answer.ended_without_response);
    }
    model.unload();
    script.assert_freed();
    host.check();
}
