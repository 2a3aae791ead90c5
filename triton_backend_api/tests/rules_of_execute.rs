//! The rules of the host that concern Execute: who owns requests, responses and errors, when.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use triton_backend_api::*;

#[test]
fn rule_1_an_error_from_execute_leaves_all_requests_with_the_server() {
    both_ways(|host, way| {
        let script = Script::new(echo);
        let model = way.load(host, &script);
        for nth in 1..=3 {
            host.fail_next("TRITONBACKEND_ResponseNew", nth);
            let execution = model.execute(three());
            let refusal = execution.result.clone().unwrap_err();
            assert!(refusal.message.contains("was made to fail"), "{refusal}");
            for answer in execution.wait() {
                assert_eq!(answer.refused, Some(refusal.clone()));
                assert_eq!((answer.responses.len(), answer.released), (0, 0));
                assert!(answer.statistics.is_empty(), "the server counts what was left with it");
            }
        }
        let answers = model.execute(three()).wait();
        assert!(answers.iter().all(|answer| answer.result().is_ok()), "the instance goes on");
        model.unload();
        script.assert_freed();
    });
}

#[test]
fn rule_1_after_success_every_request_is_answered_and_released_once() {
    both_ways(|host, way| {
        let model = way.load(host, &Script::new(echo));
        let execution = model.execute(three());
        assert_eq!(execution.result, Ok(()));
        let answers = execution.wait();
        assert_done(&answers);
        for (answer, value) in answers.iter().zip([1.0, 2.0, 3.0]) {
            assert_eq!(answer.bytes("OUTPUT0"), Some(bytes(&[value])));
        }
    });
}

#[test]
fn rule_1_one_request_fails_alone_in_its_batch() {
    both_ways(|host, way| {
        let script =
            Script::new(|author, request, reply| match request.input("INPUT0")?.elements::<f32>()?[0] {
                2.0 => Err(Error::new(ErrorCode::AlreadyExists, "two is taken\0twice")),
                _ => echo(author, request, reply),
            });
        let answers = way.load(host, &script).execute(three()).wait();
        assert_done(&answers);
        assert_eq!(answers[0].bytes("OUTPUT0"), Some(bytes(&[1.0])));
        assert_eq!(error(&answers[1]).code, abi::TRITONSERVER_ERROR_ALREADY_EXISTS);
        assert_eq!(error(&answers[1]).message, "two is taken twice");
        assert_eq!(answers[2].bytes("OUTPUT0"), Some(bytes(&[3.0])));
        assert_eq!(host.batch_statistics().iter().map(|report| report.batch_size).sum::<u64>(), 2);
    });
}

#[test]
fn rule_8_a_panic_answers_its_own_request_and_the_others_go_on() {
    both_ways(|host, way| {
        let script = Script::new(|author, request, reply| {
            echo(author, request, reply)?;
            assert!(request.input("INPUT0")?.elements::<f32>()?[0] != 2.0, "two is too much");
            Ok(())
        });
        let model = way.load(host, &script);
        for _ in 0..2 {
            let answers = model.execute(three()).wait();
            assert_done(&answers);
            assert!(answers[0].result().is_ok() && answers[2].result().is_ok());
            assert_eq!(error(&answers[1]).code, abi::TRITONSERVER_ERROR_INTERNAL);
            assert!(error(&answers[1]).message.contains("two is too much"), "{}", error(&answers[1]));
        }
        model.unload();
        script.assert_freed();
    });
}

#[test]
fn rule_8_a_panic_in_a_batch_of_the_authors_answers_all_that_is_open() {
    let host = FakeHost::new();
    let mut script = Script::new(echo);
    script.execute = Some(Arc::new(|_, batch| {
        batch.entries()[1].fail(Error::not_found("on its own"));
        panic!("the whole batch")
    }));
    let answers = Way::Waiting.load(&host, &script).execute(three()).wait();
    assert_done(&answers);
    assert_eq!(error(&answers[1]).message, "on its own");
    for answer in [&answers[0], &answers[2]] {
        assert!(error(answer).message.contains("the whole batch"));
    }
    host.check();
}

#[test]
fn rule_8_a_panic_at_any_other_point_is_an_error_there() {
    both_ways(|host, way| {
        for (point, text) in [("load", "model_initialize"), ("create", "instance_initialize")] {
            let mut script = Script::new(echo);
            match point {
                "load" => script.load = Arc::new(|_| panic!("{}", String::from("as a string"))),
                _ => script.create = Arc::new(|_| std::panic::panic_any(7)),
            }
            let refusal = way.try_load(host, &script, |_| ()).err().unwrap();
            assert_eq!(refusal.code, abi::TRITONSERVER_ERROR_INTERNAL);
            assert!(refusal.message.contains(text), "{refusal}");
            script.assert_freed();
        }
        let mut script = Script::new(echo);
        script.complete = Arc::new(|_| panic!("while completing"));
        assert!(way.try_load(host, &script, |_| ()).err().unwrap().message.contains("while completing"));
        script.assert_freed();
    });
}

#[test]
fn rule_8_a_panic_while_finalizing_reaches_the_log_and_no_further() {
    for what in ["model", "instance"] {
        both_ways(|host, way| {
            let mut script = Script::new(echo);
            script.dropped = Arc::new(move |dropped| assert!(dropped != what, "no end for the {what}"));
            let model = way.load(host, &script);
            assert!(model.execute([request(&[1.0])]).wait()[0].result().is_ok());
            model.unload();
            let lines: Vec<_> = host.log().into_iter().map(|line| line.message).collect();
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].contains(&format!("no end for the {what}")), "{lines:?}");
            script.assert_freed();
        });
    }
}

#[test]
fn rule_2_sending_consumes_the_response_also_where_it_fails() {
    both_ways(|host, way| {
        let script = Script::new(|author, request, reply| match request.id()?.as_str() {
            "fails" => Err(Error::unavailable("not now")),
            _ => echo(author, request, reply),
        });
        let model = way.load(host, &script);
        for id in ["works", "fails"] {
            host.fail_next("TRITONBACKEND_ResponseSend", 1);
            let execution = model.execute([request(&[1.0]).id(id)]);
            assert_eq!(execution.result, Ok(()), "the request is taken over: this is no error of Execute's");
            let answers = execution.wait();
            assert_eq!((answers[0].responses.len(), answers[0].released), (1, 1));
            assert!(answers[0].responses[0].lost);
            let line = host.log().pop().unwrap();
            assert_eq!(line.level, abi::TRITONSERVER_LOG_ERROR);
            assert!(line.message.contains("ResponseSend was made to fail"), "{line:?}");
            assert!(line.file.ends_with(".rs") && line.line > 0, "{line:?}");
        }
    });
}

#[test]
fn rule_2_a_request_that_cannot_be_released_is_logged() {
    both_ways(|host, way| {
        let model = way.load(host, &Script::new(echo));
        host.fail_next("TRITONBACKEND_RequestRelease", 1);
        let answers = model.execute(three()).wait();
        assert_done(&answers);
        assert!(host.log().pop().unwrap().message.contains("RequestRelease was made to fail"));
    });
}

#[test]
fn rule_5_one_instance_is_executed_once_at_a_time() {
    let host = FakeHost::new();
    let (entered, inside) = mpsc::channel();
    let (leave, left) = mpsc::channel();
    let (entered, left) = (Mutex::new(entered), Mutex::new(left));
    let script = Script::new(move |author, request, reply| {
        entered.lock().unwrap().send(()).unwrap();
        left.lock().unwrap().recv().unwrap();
        echo(author, request, reply)
    });
    let model = Way::Waiting.load(&host, &script);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| model.execute([request(&[1.0])]).wait());
        inside.recv().unwrap();
        let second = model.execute([request(&[2.0])]);
        assert_eq!(second.result.clone().unwrap_err().code, abi::TRITONSERVER_ERROR_INTERNAL);
        assert!(second.wait()[0].refused.is_some());
        leave.send(()).unwrap();
        assert_done(&first.join().unwrap());
    });
    drop(model);
    host.check();
}

#[test]
fn rule_5_instances_share_their_model_and_run_side_by_side() {
    both_ways(|host, way| {
        let barrier = std::sync::Barrier::new(2);
        let script = Script::new(move |author, request, reply| {
            barrier.wait(); // passed only where both instances are inside
            echo(author, request, reply)
        });
        let spec = |spec: &mut ModelSpec| spec.instances.push((abi::TRITONSERVER_INSTANCEGROUPKIND_CPU, 0));
        let model = way.try_load(host, &script, spec).unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| model.execute_on(1, [request(&[1.0])]).wait());
            assert_done(&model.execute_on(0, [request(&[1.0])]).wait());
            assert_done(&other.join().unwrap());
        });
        model.unload();
        script.assert_freed();
    });
}

#[test]
fn rule_7_error_codes_that_nobody_knows_are_unknown_errors() {
    both_ways(|host, way| {
        let model = way.load(host, &Script::new(echo));
        host.fail_next_with("TRITONBACKEND_RequestInput", 1, HostError::new(42, "from the future"));
        let answers = model.execute([request(&[1.0])]).wait();
        assert_eq!(error(&answers[0]), HostError::new(abi::TRITONSERVER_ERROR_UNKNOWN, "from the future"));
    });
}

#[test]
fn every_error_code_reaches_the_client() {
    use ErrorCode::*;
    let codes = [Unknown, Internal, NotFound, InvalidArg, Unavailable, Unsupported, AlreadyExists, Cancelled];
    both_ways(|host, way| {
        for (number, code) in codes.into_iter().enumerate() {
            let script = Script::new(move |_, _, _| Err(Error::new(code, "told")));
            let answers = way.load(host, &script).execute([request(&[1.0])]).wait();
            assert_eq!(error(&answers[0]), HostError::new(number as u32, "told"));
        }
    });
}

#[test]
fn rule_11_response_parameters_are_strings_integers_and_truth_values() {
    use triton_fake_host::ParameterValue;
    both_ways(|host, way| {
        let script = Script::new(|author, request, reply| {
            reply.set_parameter("text", "[[1,2,3]]")?;
            reply.set_parameter("owned", String::from("ü"))?;
            reply.set_parameter("number", -7)?;
            reply.set_parameter("truth", true)?;
            assert_eq!(reply.set_parameter("a\0b", 1).unwrap_err().code(), ErrorCode::InvalidArg);
            assert_eq!(reply.set_parameter("nul", "a\0b").unwrap_err().code(), ErrorCode::InvalidArg);
            echo(author, request, reply)
        });
        let answers = way.load(host, &script).execute([request(&[1.0])]).wait();
        let wanted = [
            ("number", ParameterValue::Int(-7)),
            ("owned", ParameterValue::String("ü".into())),
            ("text", ParameterValue::String("[[1,2,3]]".into())),
            ("truth", ParameterValue::Bool(true)),
        ];
        let found = &answers[0].result().unwrap().parameters;
        assert!(found.iter().map(|(name, value)| (name.as_str(), value.clone())).eq(wanted), "{found:?}");
    });
}

#[test]
fn an_execution_without_requests_does_nothing() {
    both_ways(|host, way| {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let script = Script::new(move |_, _, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let execution = way.load(host, &script).execute([]);
        assert_eq!(execution.result, Ok(()));
        assert_eq!(calls.load(Ordering::Relaxed), 0);
    });
}
