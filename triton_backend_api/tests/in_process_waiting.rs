//! Waiting for in-process answers: timeouts, cancellation, none, several, and what lives how long.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::child::*;
use common::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use triton_backend_api::bls::{InferenceRequest, InferenceResponse};
use triton_backend_api::*;

/// Tells when it is dropped.
struct Watched(Vec<f32>, Arc<AtomicBool>);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.fill(f32::NAN); // so that whoever reads it later finds no input
        self.1.store(true, SeqCst);
    }
}

// SAFETY: a vector's elements stay where they are until it is dropped, and nothing changes them before.
unsafe impl StableMemory for Watched {
    fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }
    fn byte_size(&self) -> usize {
        size_of_val(self.0.as_slice())
    }
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }
}

/// Calls the child with a watched input. `gave_up` is asked with the request.
fn watched(timeout: Duration, freed: &Arc<AtomicBool>) -> Script {
    let freed = freed.clone();
    Script::new(move |author, request, reply| {
        let mut call = author.server.inference_request("child", 3)?;
        let input = Watched(vec![1.0, 2.0], freed.clone());
        call.input("IN", DataType::Fp32, &[1, 2], input)?;
        let response = call.send()?.wait(timeout, || request.is_cancelled())?;
        copy(&response, reply)
    })
}

#[test]
fn rule_3_inputs_stay_until_the_release_though_nobody_waits_any_more() {
    both_ways(|host, way| {
        let freed = Arc::new(AtomicBool::new(false));
        let (seen, late) = (freed.clone(), Arc::new(AtomicBool::new(false)));
        let checked = late.clone();
        host.child("child", move |call| {
            assert!(call.wait_for_cancellation(LONG), "a caller that stops waiting cancels");
            std::thread::sleep(SHORT); // the answer to the client is out meanwhile
            assert!(!seen.load(SeqCst), "the input is still the server's to read");
            assert_eq!(call.input("IN").unwrap().bytes, bytes(&[1.0, 2.0]));
            call.respond(vec![ChildOutput::fp32("OUT", &[1], &[9.0])]); // nobody wants it; it must not leak
            assert!(!seen.load(SeqCst));
            call.release();
            assert!(seen.load(SeqCst), "released, and so freed");
            checked.store(true, SeqCst);
        });
        let script = watched(SHORT, &freed);
        let model = way.load(host, &script);
        let answer = model.execute([request(&[1.0])]).wait().remove(0);
        assert_eq!(error(&answer).code, abi::TRITONSERVER_ERROR_UNAVAILABLE);
        assert_eq!(error(&answer).message, "model 'child' did not answer within 0.04 s");
        model.unload(); // before the child is done: what it needs stays
        assert_eq!(host.violations(), Vec::<String>::new());
        assert!(late.load(SeqCst));
    });
}

#[test]
fn a_client_that_gives_up_cancels_the_call() {
    both_ways(|host, way| {
        let freed = Arc::new(AtomicBool::new(false));
        host.child("child", |call| {
            assert!(call.wait_for_cancellation(LONG));
            call.fail(abi::TRITONSERVER_ERROR_CANCELLED, "stopped");
        });
        let script = watched(LONG, &freed);
        let model = way.load(host, &script);
        let answer = model.execute([request(&[1.0]).cancelled()]).wait().remove(0);
        assert_eq!(
            error(&answer),
            HostError::new(abi::TRITONSERVER_ERROR_CANCELLED, "the request was cancelled")
        );
        model.unload();
        assert_eq!(host.violations(), Vec::<String>::new());
        assert!(freed.load(SeqCst));
    });
}

#[test]
fn a_cancellation_while_waiting_is_passed_on() {
    let host = FakeHost::new();
    let (called, is_called) = channel();
    let called = Mutex::new(called);
    host.child("child", move |call| {
        called.lock().unwrap().send(()).unwrap();
        assert!(call.wait_for_cancellation(LONG));
    });
    let script = calling(LONG);
    let model = Way::Parallel.load(&host, &script);
    let execution = model.execute([request(&[1.0])]);
    is_called.recv().unwrap();
    execution.cancel(0);
    assert_eq!(error(&execution.wait()[0]).code, abi::TRITONSERVER_ERROR_CANCELLED);
    drop(model);
    host.check();
}

#[test]
fn a_call_that_is_never_answered_ends_with_the_timeout() {
    both_ways(|host, way| {
        host.child("child", |call| call.never());
        let script = calling(SHORT);
        let answer = way.load(host, &script).execute([request(&[1.0])]).wait().remove(0);
        assert_eq!(error(&answer).code, abi::TRITONSERVER_ERROR_UNAVAILABLE);
    });
}

#[test]
fn a_pending_response_that_is_dropped_cancels_the_call() {
    both_ways(|host, way| {
        host.child("child", |call| assert!(call.wait_for_cancellation(LONG)));
        let script = Script::new(|author, request, reply| {
            drop(call(author, request)?.send()?);
            echo(author, request, reply)
        });
        assert!(answer_of(host, way, &script).result().is_ok());
    });
}

#[test]
fn rule_3_final_can_come_without_a_response() {
    both_ways(|host, way| {
        host.child("child", |call| call.finish());
        let refusal = error(&answer(host, way, &calling(LONG)));
        assert_eq!(refusal.code, abi::TRITONSERVER_ERROR_INTERNAL);
        assert_eq!(refusal.message, "model 'child' sent 0 responses; exactly one is accepted");
        // After a response it only says that there is no other.
        host.child("child", |call| {
            let outputs = doubled(call);
            call.respond_more(outputs);
            std::thread::sleep(SHORT);
            call.finish();
        });
        assert_eq!(answer(host, way, &calling(LONG)).bytes("OUTPUT0"), Some(bytes(&[3.0, -4.0])));
    });
}

#[test]
fn two_responses_are_an_error_and_neither_leaks() {
    both_ways(|host, way| {
        host.child("child", |call| {
            let outputs = doubled(call);
            call.respond_more(outputs.clone());
            call.respond(outputs);
        });
        let refusal = error(&answer(host, way, &calling(LONG)));
        assert_eq!(refusal.message, "model 'child' sent 2 responses; exactly one is accepted");
    });
}

#[test]
fn a_release_that_keeps_the_request_is_not_the_last() {
    both_ways(|host, way| {
        host.child("child", |call| {
            call.release_for_another_round();
            let outputs = doubled(call); // the inputs are still there
            call.respond(outputs);
        });
        assert_eq!(answer(host, way, &calling(LONG)).bytes("OUTPUT0"), Some(bytes(&[3.0, -4.0])));
    });
}

#[test]
fn a_response_lives_as_long_as_it_is_held() {
    let host = FakeHost::new();
    host.child("child", |call| {
        let outputs = doubled(call);
        call.respond(outputs);
    });
    let kept = Arc::new(Mutex::new(None));
    let keep = kept.clone();
    let script = Script::new(move |author, request, reply| {
        let response = call(author, request)?.send()?.wait(LONG, || false)?;
        assert_eq!(response.model()?, ("child".to_owned(), 1));
        assert_eq!(response.output_count()?, 1);
        assert!(response.output_by_index(1).is_err());
        assert_eq!(response.output("OUT")?.buffer.as_ptr() as usize % 64, 0, "aligned for vectors");
        copy(&response, reply)?;
        *keep.lock().unwrap() = Some(response);
        Ok(())
    });
    let model = Way::Waiting.load(&host, &script);
    assert!(model.execute([request(&[1.0])]).wait()[0].result().is_ok());
    model.unload();
    // The model is gone; its allocator is not, since this response still needs it.
    let response: InferenceResponse = kept.lock().unwrap().take().unwrap();
    assert_eq!(response.output("OUT").unwrap().buffer.host(), Some(&*bytes(&[2.0])));
    drop(response);
    host.check();
}

#[test]
fn several_calls_are_in_flight_at_once() {
    both_ways(|host, way| {
        let inside = Arc::new(AtomicUsize::new(0));
        host.child("child", move |call| {
            inside.fetch_add(1, SeqCst);
            assert!(soon(|| inside.load(SeqCst) == 3));
            let outputs = doubled(call);
            call.respond(outputs);
        });
        let script = Script::new(|author, request, reply| {
            let pending = [0; 3].map(|_| call(author, request).and_then(InferenceRequest::send));
            let responses = pending.map(|pending| pending?.wait(LONG, || false));
            for response in &responses[1..] {
                response.as_ref().map_err(Clone::clone)?.error()?;
            }
            copy(responses[0].as_ref().map_err(Clone::clone)?, reply)
        });
        assert_eq!(answer(host, way, &script).bytes("OUTPUT0"), Some(bytes(&[3.0, -4.0])));
    });
}
