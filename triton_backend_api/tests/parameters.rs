//! Parameters: of requests, of responses, and of in-process requests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::child::*;
use common::*;
use triton_backend_api::*;
use triton_fake_host::ParameterValue;

fn with_parameters() -> TestRequest {
    request(&[1.0])
        .parameter("text", ParameterValue::String("ü".into()))
        .parameter("number", ParameterValue::Int(i64::MIN))
        .parameter("truth", ParameterValue::Bool(true))
        .parameter("fraction", ParameterValue::Double(-0.5))
}

#[test]
fn request_parameters_come_with_their_types() {
    both_ways(|host, way| {
        let script = Script::new(|_, request, _| {
            assert_eq!(request.parameter("text")?.unwrap().as_str(), Some("ü"));
            assert_eq!(request.parameter("number")?, Some(Parameter::Int(i64::MIN)));
            assert_eq!(request.parameter("truth")?, Some(Parameter::Bool(true)));
            assert_eq!(request.parameter("fraction")?, Some(Parameter::Double(-0.5)));
            assert_eq!(request.parameter("other")?, None);
            let names: Vec<_> = request.parameters()?.into_iter().map(|parameter| parameter.0).collect();
            assert_eq!(names, ["text", "number", "truth", "fraction"]);
            Ok(())
        });
        let model = way.load(host, &script);
        assert_eq!(model.execute([with_parameters()]).wait()[0].result().err(), None);
    });
}

#[test]
fn rule_7_a_parameter_of_an_unknown_type_is_kept_apart() {
    both_ways(|host, way| {
        let script = Script::new(|_, request, reply| {
            assert_eq!(request.parameter("new")?, Some(Parameter::Unknown(42)));
            let refusal = reply.set_parameter("new", Parameter::Unknown(42)).unwrap_err();
            assert_eq!(refusal.code(), ErrorCode::Unsupported);
            assert_eq!(refusal.message(), "parameter 'new': a value of the unknown type 42 cannot be set");
            Ok(())
        });
        let request = request(&[1.0]).parameter("new", ParameterValue::Other(42));
        assert_eq!(way.load(host, &script).execute([request]).wait()[0].result().err(), None);
    });
}

#[test]
fn doubles_are_of_another_type_on_a_server_that_has_none() {
    both_ways(|host, way| {
        host.without_younger_calls();
        let script = Script::new(|author, request, reply| {
            // What such a server numbers 3 is no double.
            assert_eq!(request.parameter("fraction")?, Some(Parameter::Unknown(3)));
            assert_eq!(request.parameter("number")?, Some(Parameter::Int(i64::MIN)));
            let mut call = author.server.inference_request("child", -1)?;
            for refusal in
                [reply.set_parameter("x", 0.5), call.set_parameter("x", 0.5)].map(Result::unwrap_err)
            {
                assert_eq!(refusal.code(), ErrorCode::Unsupported);
                assert!(
                    refusal.message().starts_with("parameter 'x': this server has no TRITON"),
                    "{refusal}"
                );
                assert!(refusal.message().ends_with("it came with backend API 1.18"), "{refusal}");
            }
            Ok(())
        });
        host.child("child", |_| panic!("not called"));
        assert_eq!(way.load(host, &script).execute([with_parameters()]).wait()[0].result().err(), None);
    });
}

#[test]
fn rule_11_response_parameters_can_be_doubles_too() {
    both_ways(|host, way| {
        let script = Script::new(|author, request, reply| {
            reply.set_parameter("dice", 0.9)?;
            echo(author, request, reply)
        });
        let answers = way.load(host, &script).execute([request(&[1.0])]).wait();
        assert_eq!(answers[0].result().unwrap().parameters["dice"], ParameterValue::Double(0.9));
    });
}

#[test]
fn parameters_are_forwarded_to_a_call_and_set() {
    both_ways(|host, way| {
        host.child("child", |call| {
            let wanted = [
                ("text", ParameterValue::String("ü".into())),
                ("number", ParameterValue::Int(i64::MIN)),
                ("truth", ParameterValue::Bool(true)),
                ("fraction", ParameterValue::Double(-0.5)),
                ("own", ParameterValue::Int(7)),
            ];
            assert!(call.parameters().iter().map(|(name, value)| (name.as_str(), value.clone())).eq(wanted));
            assert_eq!(
                (call.priority(), call.id(), call.flags(), call.timeout_us()),
                (u64::MAX, "own id", 3, 5)
            );
            assert_eq!(*call.correlation(), Correlation::text("own"));
            let outputs = doubled(call);
            call.respond(outputs);
        });
        let script = Script::new(|author, request, reply| {
            let mut call = call(author, request)?;
            call.forward_parameters(request)?;
            call.set_parameter("own", 7)?;
            call.set_priority(u64::MAX)?;
            call.set_id("own id")?;
            call.set_flags(RequestFlags::SEQUENCE_START | RequestFlags::SEQUENCE_END)?;
            call.set_correlation_id(&CorrelationId::Text("own".into()))?;
            call.set_timeout_us(5)?;
            assert!(call.set_parameter("a\0b", 1).is_err() && call.set_id("a\0b").is_err());
            copy(&call.send()?.wait(LONG, || false)?, reply)
        });
        let answers = way.load(host, &script).execute([with_parameters()]).wait();
        assert_eq!(answers[0].bytes("OUTPUT0"), Some(bytes(&[2.0])));
    });
}

#[test]
fn flags_are_told_apart_and_others_kept() {
    both_ways(|host, way| {
        let script = Script::new(|_, request, _| {
            let flags = request.flags()?;
            assert!(flags.is_sequence_end() && !flags.is_sequence_start());
            assert!(flags.contains(RequestFlags::from_bits(1 << 9)));
            assert_eq!(flags.bits(), 2 | 1 << 9);
            assert!(request.is_traced() && request.wants_output("OUTPUT0")? && !request.wants_output("X")?);
            assert_eq!(request.inputs()?.len(), 1);
            Ok(())
        });
        let request = request(&[1.0]).flags(2 | 1 << 9).traced();
        assert_eq!(way.load(host, &script).execute([request]).wait()[0].result().err(), None);
    });
}

#[test]
fn the_parameters_of_a_childs_response_are_read() {
    both_ways(|host, way| {
        host.child("child", |call| {
            call.set_parameter("text", ParameterValue::String("a".into()));
            call.set_parameter("fraction", ParameterValue::Double(0.25));
            call.set_parameter("new", ParameterValue::Other(9));
            let outputs = doubled(call);
            call.respond(outputs);
        });
        let script = Script::new(|author, request, reply| {
            let response = call(author, request)?.send()?.wait(LONG, || false)?;
            let wanted = [
                ("text", Parameter::from("a")),
                ("fraction", Parameter::from(0.25)),
                ("new", Parameter::Unknown(9)),
            ];
            let found = response.parameters()?;
            assert!(found.iter().map(|(name, value)| (name.as_str(), value.clone())).eq(wanted), "{found:?}");
            assert_eq!(response.parameter("text")?.unwrap().as_str(), Some("a"));
            assert_eq!((response.parameter("none")?, response.id()?), (None, "the id".to_owned()));
            copy(&response, reply)
        });
        let answers = way.load(host, &script).execute([request(&[1.0]).id("the id")]).wait();
        assert_eq!(answers[0].bytes("OUTPUT0"), Some(bytes(&[2.0])));
    });
}
