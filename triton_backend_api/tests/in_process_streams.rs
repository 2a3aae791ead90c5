//! In-process requests to models that answer with several responses, and what their tensors hold.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::child::*;
use common::*;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use triton_backend_api::*;

fn out(value: f32) -> Vec<ChildOutput> {
    vec![ChildOutput::fp32("OUT", &[1], &[value])]
}

/// Passes every response of the child on; the errors of the child's responses are the author's.
fn passing_on(author: &Author, request: &Request, reply: &mut Reply) -> Result<()> {
    let mut pending = call(author, request)?.send()?;
    while let Some(response) = pending.next(LONG, || request.is_cancelled())? {
        copy(&response, reply)?;
        reply.send_more()?;
    }
    assert!(pending.next(LONG, || false)?.is_none(), "the end stays the end");
    Ok(())
}

fn values(answer: &Answer) -> Vec<Vec<u8>> {
    answer.responses.iter().flat_map(|response| &response.outputs).map(|o| o.bytes.clone().unwrap()).collect()
}

#[test]
fn the_responses_of_a_decoupled_child_come_one_by_one() {
    for last_with_flag in [false, true] {
        both_ways(|host, way| {
            host.child("child", move |call| {
                (0..3).for_each(|n| call.respond_more(out(n as f32)));
                match last_with_flag {
                    true => call.respond(out(3.0)),
                    false => {
                        call.respond_more(out(3.0));
                        std::thread::sleep(SHORT);
                        call.finish();
                    }
                }
            });
            let model = way.try_load(host, &Script::new(passing_on), decoupled).unwrap();
            let answer = model.execute([request(&[1.0])]).wait().remove(0);
            assert_eq!(values(&answer), [0.0, 1.0, 2.0, 3.0].map(|value: f32| bytes(&[value])));
        });
    }
}

#[test]
fn a_child_may_answer_with_nothing_or_fail_after_some_responses() {
    both_ways(|host, way| {
        host.child("child", |call| call.finish());
        let model = way.try_load(host, &Script::new(passing_on), decoupled).unwrap();
        let none = model.execute([request(&[1.0])]).wait().remove(0);
        assert!(none.ended_without_response && none.responses.is_empty());
        host.child("child", |call| {
            call.respond_more(out(1.0));
            call.fail(abi::TRITONSERVER_ERROR_UNAVAILABLE, "no more");
        });
        let some = model.execute([request(&[1.0])]).wait().remove(0);
        assert_eq!(values(&some), [bytes(&[1.0])]);
        let wanted = HostError::new(abi::TRITONSERVER_ERROR_UNAVAILABLE, "model 'child': no more");
        assert_eq!(some.responses[1].error, Some(wanted));
    });
}

#[test]
fn a_stream_that_nobody_reads_to_its_end_is_cancelled_and_nothing_of_it_leaks() {
    both_ways(|host, way| {
        let cancelled = Arc::new(AtomicBool::new(false));
        let seen = cancelled.clone();
        host.child("child", move |call| {
            call.respond_more(out(1.0));
            call.respond_more(out(2.0));
            seen.store(call.wait_for_cancellation(LONG), SeqCst);
            call.respond_more(out(3.0));
            call.finish();
        });
        let script = Script::new(|author, request, reply| {
            let mut pending = call(author, request)?.send()?;
            let first = pending.next(LONG, || false)?.unwrap();
            drop(pending);
            copy(&first, reply) // it lives on
        });
        let answer = answer_of(host, way, &script);
        assert_eq!(answer.bytes("OUTPUT0"), Some(bytes(&[1.0])));
        assert_eq!(host.violations(), Vec::<String>::new());
        assert!(cancelled.load(SeqCst));
    });
}

#[test]
fn waiting_for_the_next_response_ends_with_a_timeout_or_a_cancellation() {
    both_ways(|host, way| {
        host.child("child", |call| {
            call.respond_more(out(1.0));
            assert!(call.wait_for_cancellation(LONG));
        });
        let script = Script::new(|author, request, _| {
            let mut pending = call(author, request)?.send()?;
            assert!(pending.next(LONG, || false)?.is_some());
            let late = pending.next(Duration::from_millis(1), || false).err().unwrap();
            assert_eq!(late.code(), ErrorCode::Unavailable);
            assert_eq!(pending.next(LONG, || true).err().unwrap().code(), ErrorCode::Cancelled);
            pending.cancel();
            // The child ends by itself now: with the error of whoever leaves a call unanswered.
            let last = pending.next(LONG, || false)?.unwrap();
            last.error()
        });
        let refusal = error(&answer_of(host, way, &script));
        assert!(refusal.message.contains("ended without an answer"), "{refusal}");
    });
}

#[test]
fn the_childs_tensors_are_read_as_what_they_are() {
    both_ways(|host, way| {
        host.child("child", |call| {
            let texts = ByteStrings::encode(&["a", "bc"]).unwrap();
            call.respond(vec![
                ChildOutput::fp32("OUT", &[2], &[1.0, 2.0]),
                ChildOutput::new("TEXT", abi::TRITONSERVER_TYPE_BYTES, &[2], texts),
                ChildOutput::new("CUT", abi::TRITONSERVER_TYPE_BYTES, &[2], vec![1, 0, 0, 0, 7, 9, 0, 0, 0]),
                ChildOutput::fp32("FAR", &[1], &[1.0]).saying_memory(abi::TRITONSERVER_MEMORY_GPU, 2),
            ]);
        });
        let script = Script::new(|author, request, reply| {
            let mut call = author.server.inference_request("child", -1)?;
            call.inherit(request)?;
            let response = call.send()?.wait(LONG, || false)?;
            let out = response.output("OUT")?;
            assert!(matches!(out.elements::<f32>()?, Cow::Borrowed([1.0, 2.0])));
            assert_eq!(out.elements::<i32>().unwrap_err().message(), "output 'OUT' is FP32, read as INT32");
            assert!(out.device_slice::<f32>().is_err() && out.byte_strings().is_err());
            assert_eq!(response.output("TEXT")?.byte_strings()?.text(1)?, "bc");
            let cut = response.output("CUT")?.byte_strings().unwrap_err();
            assert!(
                cut.message().starts_with("output 'CUT': BYTES tensor of 2 elements: element 1"),
                "{cut}"
            );
            let far = response.output("FAR")?;
            let view = far.device_slice::<f32>()?;
            assert_eq!((view.device(), view.len()), (2, 1));
            let refusal = far.elements::<f32>().unwrap_err();
            assert!(refusal.message().contains("output 'FAR' lies in memory of GPU 2"), "{refusal}");
            echo(author, request, reply)
        });
        assert!(answer_of(host, way, &script).result().is_ok());
    });
}
