//! In-process requests: another model of the same server is called.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::child::*;
use common::*;
use triton_backend_api::*;

#[test]
fn the_child_gets_the_input_and_its_output_comes_back() {
    for early in [false, true] {
        both_ways(|host, way| {
            host.child("child", move |call| {
                assert_eq!((call.model(), call.version()), ("child", -1));
                assert_eq!(call.requested_outputs(), ["OUT"]);
                let input = call.input("IN").unwrap();
                assert_eq!(
                    (input.data_type, input.shape.as_slice()),
                    (abi::TRITONSERVER_TYPE_FP32, &[1, 2][..])
                );
                assert_eq!(input.memory_types, [abi::TRITONSERVER_MEMORY_CPU]);
                let outputs = doubled(call);
                if early {
                    call.release(); // before the response, which the server is free to do
                }
                call.respond(outputs);
            });
            assert_eq!(answer(host, way, &calling(LONG)).bytes("OUTPUT0"), Some(bytes(&[3.0, -4.0])));
        });
    }
}

#[test]
fn what_ties_the_call_to_its_request_is_inherited() {
    for correlation in [Correlation::Number(77), Correlation::text("sequence")] {
        both_ways(|host, way| {
            let wanted = correlation.clone();
            host.child("child", move |call| {
                assert_eq!((call.id(), call.flags(), call.timeout_us()), ("id", 1, 9_000_000));
                assert_eq!(*call.correlation(), wanted);
                assert!(call.is_traced());
                let outputs = doubled(call);
                call.respond(outputs);
            });
            let script = calling(LONG);
            let request = request(&[1.0]).id("id").correlation(correlation.clone()).flags(1);
            let model = way.load(host, &script);
            let answers = model.execute([request.timeout_us(9_000_000).traced()]).wait();
            assert_eq!(answers[0].bytes("OUTPUT0"), Some(bytes(&[2.0])));
        });
    }
}

#[test]
fn a_trace_of_a_call_that_is_not_sent_is_deleted() {
    both_ways(|host, way| {
        host.child("child", |_| panic!("not called"));
        let script = Script::new(|author, request, reply| {
            let mut call = author.server.inference_request("child", -1)?;
            call.inherit(request)?;
            call.inherit(request)?; // one trace is enough
            drop(call);
            echo(author, request, reply)
        });
        way.load(host, &script).execute([request(&[1.0]).traced()]).wait()[0].result().unwrap();
        assert_eq!(host.calls()["TRITONSERVER_InferenceTraceDelete"], 1);
    });
}

#[test]
fn a_server_that_cannot_trace_is_called_without() {
    both_ways(|host, way| {
        for symbol in ["TRITONBACKEND_RequestTrace", "TRITONSERVER_InferenceTraceSpawnChildTrace"] {
            host.child("child", |call| {
                assert!(!call.is_traced());
                let outputs = doubled(call);
                call.respond(outputs);
            });
            host.fail_next(symbol, 1);
            let script = calling(LONG);
            way.load(host, &script).execute([request(&[1.0]).traced()]).wait()[0].result().unwrap();
            assert_eq!(host.faults_left(), 0);
        }
    });
}

#[test]
fn rule_3_the_childs_error_comes_with_its_code() {
    both_ways(|host, way| {
        host.child("child", |call| call.fail(abi::TRITONSERVER_ERROR_NOT_FOUND, "no weights"));
        let wanted = HostError::new(abi::TRITONSERVER_ERROR_NOT_FOUND, "model 'child': no weights");
        assert_eq!(error(&answer(host, way, &calling(LONG))), wanted);
    });
}

#[test]
fn rule_3_a_call_that_cannot_be_made_leaves_nothing_behind() {
    const STEPS: [&str; 11] = [
        "TRITONSERVER_InferenceRequestNew",
        "TRITONSERVER_InferenceRequestSetId",
        "TRITONSERVER_InferenceRequestSetCorrelationId",
        "TRITONSERVER_InferenceRequestSetFlags",
        "TRITONSERVER_InferenceRequestSetTimeoutMicroseconds",
        "TRITONSERVER_InferenceRequestAddInput",
        "TRITONSERVER_InferenceRequestAppendInputData",
        "TRITONSERVER_InferenceRequestAddRequestedOutput",
        "TRITONSERVER_InferenceRequestSetReleaseCallback",
        "TRITONSERVER_InferenceRequestSetResponseCallback",
        "TRITONSERVER_ServerInferAsync",
    ];
    both_ways(|host, way| {
        host.child("child", |_| panic!("not called"));
        let script = calling(LONG);
        let model = way.load(host, &script);
        for step in STEPS {
            host.fail_next_with(step, 1, HostError::new(abi::TRITONSERVER_ERROR_UNAVAILABLE, step));
            let answer = model.execute([request(&[1.0]).traced()]).wait().remove(0);
            assert_eq!(error(&answer), HostError::new(abi::TRITONSERVER_ERROR_UNAVAILABLE, step));
        }
        model.unload();
        script.assert_freed();
    });
}

#[test]
fn rule_9_a_model_that_calls_itself_is_refused() {
    both_ways(|host, way| {
        host.child("under_test", |_| panic!("not called"));
        let script =
            Script::new(|author, _, _| author.server.inference_request("under_test", -1).map(|_| ()));
        let refusal = error(&answer(host, way, &script));
        assert_eq!(refusal.code, abi::TRITONSERVER_ERROR_UNSUPPORTED);
        assert!(refusal.message.contains("'under_test' cannot call itself"), "{refusal}");
    });
}

#[test]
fn a_model_that_the_server_does_not_have_is_an_error() {
    both_ways(|host, way| {
        assert_eq!(error(&answer(host, way, &calling(LONG))).code, abi::TRITONSERVER_ERROR_NOT_FOUND);
        let script = Script::new(|author, request, reply| {
            assert!(!author.server.model_is_ready("child", -1)?);
            assert!(author.server.model_is_ready("other", 1)?);
            assert!(author.server.model_is_ready("a\0b", 1).is_err());
            assert!(author.server.inference_request("a\0b", 1).is_err());
            echo(author, request, reply)
        });
        host.child("other", |_| ());
        answer(host, way, &script).result().unwrap();
    });
}

#[test]
fn rule_8_a_panic_of_the_callers_memory_stays_inside() {
    struct Fragile(Vec<f32>);
    impl Drop for Fragile {
        fn drop(&mut self) {
            assert!(self.0.is_empty(), "memory that cannot be freed");
        }
    }
    // SAFETY: a vector's elements stay where they are until it is dropped, and nothing changes them before.
    unsafe impl StableMemory for Fragile {
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
    both_ways(|host, way| {
        host.child("child", |call| {
            let outputs = doubled(call);
            call.respond(outputs);
        });
        let script = Script::new(|author, _, reply| {
            let mut call = author.server.inference_request("child", -1)?;
            call.input("IN", DataType::Fp32, &[2], Fragile(vec![1.0, 2.0]))?;
            copy(&call.send()?.wait(LONG, || false)?, reply)
        });
        assert_eq!(answer_of(host, way, &script).bytes("OUTPUT0"), Some(bytes(&[2.0, 4.0])));
    });
}

/// What the author makes of a child that answers with these outputs.
fn with_outputs(host: &FakeHost, way: Way, outputs: &[ChildOutput]) -> Answer {
    let outputs = outputs.to_vec();
    host.child("child", move |call| call.respond(outputs.clone()));
    answer(host, way, &calling(LONG))
}

#[test]
fn the_childs_outputs_are_checked() {
    both_ways(|host, way| {
        let out = || ChildOutput::fp32("OUT", &[2], &[1.0, 2.0]);
        let cases: [(ChildOutput, &str); 4] = [
            (ChildOutput::fp32("OTHER", &[2], &[1.0, 2.0]), "no output 'OUT' came, but [\"OTHER\"]"),
            (out().saying_size(4), "4 bytes came for FP32 [2], which takes 8"),
            (ChildOutput::fp32("OUT", &[3], &[1.0, 2.0]), "8 bytes came for FP32 [3], which takes 12"),
            (out().saying_memory(abi::TRITONSERVER_MEMORY_GPU, 1), "OUT is out of reach"),
        ];
        for (output, text) in cases {
            let refusal = error(&with_outputs(host, way, &[output]));
            assert!(refusal.message.contains(text), "{refusal}");
        }
        let refusal = error(&with_outputs(host, way, &[]));
        assert!(refusal.message.contains("no output 'OUT' came, but []"), "{refusal}");
        let other = ChildOutput::new("OTHER", 77, &[1], vec![1]);
        let answer = with_outputs(host, way, &[other, out()]);
        assert_eq!(
            answer.bytes("OUTPUT0"),
            Some(bytes(&[1.0, 2.0])),
            "rule 7: unknown types of others do not matter"
        );
        let answer = with_outputs(host, way, &[ChildOutput::fp32("OUT", &[0], &[])]);
        assert_eq!(answer.bytes("OUTPUT0"), Some(vec![]));
    });
}
