//! What a request holds, and where its tensors lie.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::*;
use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use triton_backend_api::*;

/// Answers with INPUT0 as numbers, so that all that can go wrong with reading it does.
fn echo_numbers(_: &Author, request: &Request, reply: &mut Reply) -> Result<()> {
    let input = request.input("INPUT0")?;
    let values = input.elements::<f32>()?;
    reply.output("OUTPUT0", DataType::Fp32, input.shape())?.bytes_mut()?.copy_from_slice(&bytes(&values));
    Ok(())
}

/// What becomes of one request.
fn answer(host: &FakeHost, way: Way, script: &Script, request: TestRequest) -> Answer {
    way.load(host, script).execute([request]).wait().remove(0)
}

const VALUES: [f32; 5] = [1.0, -2.5, f32::NAN, f32::INFINITY, 5.0];

fn values() -> TestInput {
    TestInput::fp32("INPUT0", &[1, 5], &VALUES)
}

#[test]
fn buffers_split_anywhere_are_gathered() {
    both_ways(|host, way| {
        let cuts: [&[usize]; 6] = [&[1], &[3, 3, 7, 13], &[4, 8], &[0], &[20], &[0, 1, 2, 3, 4, 5, 19]];
        for cuts in cuts {
            for misalign in [0, 1, 2, 4, 7] {
                for script in [Script::new(echo_numbers), Script::new(echo)] {
                    let request = TestRequest::new([values().split(cuts).misaligned(misalign)]);
                    let answer = answer(host, way, &script, request);
                    assert_eq!(answer.bytes("OUTPUT0"), Some(bytes(&VALUES)), "{cuts:?} {misalign}");
                }
            }
        }
    });
}

/// Whether INPUT0 was read in place, as bytes and as numbers.
fn in_place(host: &FakeHost, way: Way, input: TestInput) -> (bool, bool) {
    let seen = Arc::new(Mutex::new(None));
    let see = seen.clone();
    let script = Script::new(move |author, request, reply| {
        let input = request.input("INPUT0")?;
        let there = input.buffer(0)?.as_ptr();
        let bytes = matches!(input.bytes()?, Cow::Borrowed(bytes) if bytes.as_ptr() == there);
        let numbers = matches!(input.elements::<f32>()?, Cow::Borrowed(all) if all.as_ptr().cast() == there);
        *see.lock().unwrap() = Some((bytes, numbers));
        echo_numbers(author, request, reply)
    });
    let answer = answer(host, way, &script, TestRequest::new([input]));
    assert_eq!(answer.bytes("OUTPUT0"), Some(bytes(&VALUES)));
    let seen = seen.lock().unwrap();
    seen.unwrap()
}

#[test]
fn a_single_host_buffer_is_used_in_place() {
    both_ways(|host, way| {
        assert_eq!(in_place(host, way, values()), (true, true));
        let pinned = values().memory(abi::TRITONSERVER_MEMORY_CPU_PINNED, 0);
        assert_eq!(in_place(host, way, pinned), (true, true), "pinned memory is the host's");
        assert_eq!(in_place(host, way, values().misaligned(2)), (true, false), "numbers need alignment");
        assert_eq!(in_place(host, way, values().misaligned(4)), (true, true));
        assert_eq!(in_place(host, way, values().split(&[8])), (false, false));
    });
}

#[test]
fn wrong_byte_sizes_are_refused() {
    both_ways(|host, way| {
        let script = Script::new(echo_numbers);
        // The description does not fit the shape.
        for said in [19, 21, 0, 24, u64::MAX] {
            let request = TestRequest::new([values().saying_size(said)]);
            let refusal = error(&answer(host, way, &script, request));
            assert_eq!(refusal.code, abi::TRITONSERVER_ERROR_INVALID_ARG);
            let (said, wanted) = (format!("{said} bytes"), "FP32 [1, 5], which takes 20");
            assert!(refusal.message.contains(&said) && refusal.message.contains(wanted), "{refusal}");
        }
        // The description fits, the buffers do not.
        for cuts in [&[][..], &[3]] {
            let input = TestInput::fp32("INPUT0", &[1, 6], &VALUES).saying_size(24).split(cuts);
            for script in [Script::new(echo_numbers), Script::new(echo)] {
                let refusal = error(&answer(host, way, &script, TestRequest::new([input.clone()])));
                assert!(refusal.message.contains("its buffers hold 20 bytes"), "{refusal}");
            }
        }
        for shape in [&[-1, 5][..], &[i64::MAX, 5]] {
            let request = TestRequest::new([TestInput::fp32("INPUT0", shape, &VALUES)]);
            let refusal = error(&answer(host, way, &script, request));
            assert!(refusal.message.starts_with("input 'INPUT0': shape"), "{refusal}");
        }
    });
}

#[test]
fn inputs_read_as_another_type_are_refused() {
    both_ways(|host, way| {
        let input = TestInput::new("INPUT0", abi::TRITONSERVER_TYPE_INT32, &[1, 5], bytes(&VALUES));
        let refusal = error(&answer(host, way, &Script::new(echo_numbers), TestRequest::new([input])));
        assert_eq!(refusal.code, abi::TRITONSERVER_ERROR_INVALID_ARG);
        assert_eq!(refusal.message, "input 'INPUT0' is INT32, read as FP32");
    });
}

#[test]
fn rule_7_unknown_element_and_memory_types_are_kept_apart() {
    both_ways(|host, way| {
        let script = Script::new(|_, request, reply| {
            let input = request.input("INPUT0")?;
            assert_eq!(input.data_type(), DataType::Unknown(77));
            assert_eq!(input.buffer(0)?.kind(), MemoryKind::Unknown(9));
            assert_eq!(input.elements::<f32>().unwrap_err().code(), ErrorCode::InvalidArg);
            assert!(input.buffer(0)?.host().is_none());
            assert!(reply.output("OUTPUT0", DataType::Unknown(77), &[1]).is_err());
            input.bytes().map(|_| ())
        });
        let input = TestInput::new("INPUT0", 77, &[1, 1], vec![0; 3]).memory(9, 0);
        let refusal = error(&answer(host, way, &script, TestRequest::new([input])));
        assert_eq!(refusal.code, abi::TRITONSERVER_ERROR_UNSUPPORTED);
        assert!(refusal.message.contains("memory of unknown type 9"), "{refusal}");
    });
}

#[test]
fn memory_of_a_gpu_is_refused_by_what_reads_and_writes_on_the_host() {
    both_ways(|host, way| {
        for script in [Script::new(echo_numbers), Script::new(echo)] {
            let gpu = abi::TRITONSERVER_MEMORY_GPU;
            let refusal = error(&answer(host, way, &script, TestRequest::new([values().memory(gpu, 3)])));
            assert_eq!(refusal.code, abi::TRITONSERVER_ERROR_UNSUPPORTED);
            assert!(refusal.message.contains("input 'INPUT0' lies in memory of GPU 3"), "{refusal}");
            let request = TestRequest::new([values()]).output_memory("OUTPUT0", gpu, 1);
            let refusal = error(&answer(host, way, &script, request));
            assert!(refusal.message.contains("output 'OUTPUT0' lies in memory of GPU 1"), "{refusal}");
        }
    });
}

#[test]
fn memory_of_a_gpu_can_be_asked_for_and_is_told() {
    both_ways(|host, way| {
        let script = Script::new(|_, request, reply| {
            let input = request.input("INPUT0")?;
            assert_eq!(input.buffer(0)?.kind(), MemoryKind::Gpu(2));
            let mut output = reply.output_in(MemoryKind::Gpu(2), "OUTPUT0", DataType::Fp32, &[1, 5])?;
            assert_eq!((output.kind(), output.byte_size()), (MemoryKind::Gpu(2), 20));
            assert!(!output.as_mut_ptr().is_null());
            Ok(())
        });
        let request = TestRequest::new([values().memory(abi::TRITONSERVER_MEMORY_GPU, 2)]);
        assert!(answer(host, way, &script, request).result().is_ok());
    });
}

#[test]
fn outputs_at_any_address_are_written_within_their_bounds() {
    both_ways(|host, way| {
        for misalign in [1, 2, 3, 5, 63] {
            let request = TestRequest::new([values()]).output_misaligned("OUTPUT0", misalign);
            let answer = answer(host, way, &Script::new(echo_numbers), request);
            assert_eq!(answer.bytes("OUTPUT0"), Some(bytes(&VALUES)));
        }
    });
}

#[test]
fn impossible_outputs_are_refused() {
    both_ways(|host, way| {
        let script = Script::new(|_, _, reply| {
            for shape in [&[-1][..], &[i64::MAX, 2]] {
                let refusal = reply.output("OUTPUT0", DataType::Fp32, shape).err().unwrap();
                assert!(refusal.message().starts_with("output 'OUTPUT0': shape"), "{refusal}");
            }
            assert!(reply.output("a\0b", DataType::Fp32, &[1]).is_err());
            Ok(())
        });
        assert_eq!(answer(host, way, &script, request(&[1.0])).result().unwrap().outputs, []);
    });
}

#[test]
fn empty_tensors_come_and_go() {
    both_ways(|host, way| {
        for cuts in [&[][..], &[0, 0]] {
            for script in [Script::new(echo_numbers), Script::new(echo)] {
                let input = TestInput::fp32("INPUT0", &[1, 0], &[]).split(cuts);
                let answer = answer(host, way, &script, TestRequest::new([input]));
                let outputs = &answer.result().unwrap().outputs;
                assert_eq!(
                    (outputs[0].shape.as_slice(), outputs[0].bytes.as_deref()),
                    (&[1, 0][..], Some(&[][..]))
                );
            }
        }
    });
}

#[test]
fn elements_of_variable_size_are_bytes() {
    both_ways(|host, way| {
        let script = Script::new(|_, request, reply| {
            let input = request.input("INPUT0")?;
            assert_eq!((input.data_type(), input.byte_size()), (DataType::Bytes, 7));
            assert_eq!(&*input.bytes()?, b"\x03\0\0\0abc");
            assert!(reply.output("OUTPUT0", DataType::Bytes, &[1]).is_err(), "its size is not known");
            Ok(())
        });
        let text = b"\x03\0\0\0abc".to_vec();
        let input = TestInput::new("INPUT0", abi::TRITONSERVER_TYPE_BYTES, &[1, 1], text).split(&[5]);
        assert!(answer(host, way, &script, TestRequest::new([input])).result().is_ok());
    });
}

/// Answers with the texts of INPUT0, each behind a "!".
fn shout(_: &Author, request: &Request, reply: &mut Reply) -> Result<()> {
    let input = request.input("INPUT0")?;
    let texts = input.byte_strings()?;
    let louder: Vec<_> =
        (0..texts.len()).map(|at| texts.text(at).map(|text| format!("!{text}"))).collect::<Result<_>>()?;
    reply.output_byte_strings("OUTPUT0", input.shape(), &louder)
}

#[test]
fn bytes_tensors_are_decoded_and_encoded() {
    both_ways(|host, way| {
        let encoded = ByteStrings::encode(&["spleen", "", "ü"]).unwrap();
        for cuts in [&[][..], &[2], &[4, 11, 15]] {
            let input = TestInput::new("INPUT0", abi::TRITONSERVER_TYPE_BYTES, &[1, 3], encoded.clone());
            let answer = answer(host, way, &Script::new(shout), TestRequest::new([input.split(cuts)]));
            let output = &answer.result().unwrap().outputs[0];
            assert_eq!(
                (output.data_type, output.shape.as_slice()),
                (abi::TRITONSERVER_TYPE_BYTES, &[1, 3][..])
            );
            let bytes = output.bytes.as_deref().unwrap();
            let texts = ByteStrings::decode(bytes, 3).unwrap();
            assert!(texts.iter().eq(["!spleen", "!", "!ü"].map(str::as_bytes)), "{cuts:?}");
        }
        let none = TestInput::new("INPUT0", abi::TRITONSERVER_TYPE_BYTES, &[1, 0], vec![]);
        let answer = answer(host, way, &Script::new(shout), TestRequest::new([none]));
        assert_eq!(answer.bytes("OUTPUT0"), Some(vec![]));
    });
}

#[test]
fn malformed_bytes_tensors_are_refused_by_name() {
    both_ways(|host, way| {
        for (shape, encoded, what) in [
            (
                &[1, 2][..],
                &b"\x01\0\0\0a\x09\0\0\0b"[..],
                "element 1 at byte 5 is 9 bytes long, but 1 are left",
            ),
            (&[1, 3], b"\x01\0\0\0a", "its 5 bytes are too few"),
            (&[1, 1], b"\x01\0\0\0ab", "1 bytes come after the last element"),
            (&[i64::MAX, 9], b"\x01\0\0\0a", "is negative or too large"),
            (&[1, 1], b"\x01\0\0\0\xff", "element 0 is no UTF-8"),
        ] {
            let input = TestInput::new("INPUT0", abi::TRITONSERVER_TYPE_BYTES, shape, encoded.to_vec());
            let refusal = error(&answer(host, way, &Script::new(shout), TestRequest::new([input])));
            assert_eq!(refusal.code, abi::TRITONSERVER_ERROR_INVALID_ARG);
            assert!(refusal.message.contains(what), "{refusal}");
        }
        let refusal = error(&answer(host, way, &Script::new(shout), TestRequest::new([values()])));
        assert_eq!(refusal.message, "input 'INPUT0' is FP32, read as BYTES");
    });
}

#[test]
fn outputs_of_bytes_take_as_many_elements_as_their_shape() {
    both_ways(|host, way| {
        let script = Script::new(|_, _, reply| {
            let refusal = reply.output_byte_strings("OUTPUT0", &[2, 2], &["a"]).unwrap_err();
            assert_eq!(refusal.message(), "output 'OUTPUT0' of shape [2, 2] takes 4 elements; 1 were given");
            assert!(reply.output_byte_strings("OUTPUT0", &[-1], &["a"]).is_err());
            reply.output_byte_strings("OUTPUT0", &[1], &["a"])
        });
        let there = answer(host, way, &script, request(&[1.0]).output_misaligned("OUTPUT0", 3));
        assert_eq!(there.bytes("OUTPUT0").as_deref(), Some(&b"\x01\0\0\0a"[..]));
        let gpu = request(&[1.0]).output_memory("OUTPUT0", abi::TRITONSERVER_MEMORY_GPU, 1);
        let refusal = error(&answer(host, way, &script, gpu));
        assert!(refusal.message.contains("output 'OUTPUT0' lies in memory of GPU 1"), "{refusal}");
    });
}

#[test]
fn everything_the_client_said_is_there() {
    both_ways(|host, way| {
        let script = Script::new(|_, request, _| {
            assert_eq!(request.id()?, "the id");
            assert_eq!(request.correlation_id()?, CorrelationId::Number(u64::MAX));
            assert_eq!((request.flags()?.bits(), request.timeout_us()?), (3, 5_000_000));
            assert!(!request.is_cancelled());
            assert_eq!(request.input_count()?, 2);
            assert_eq!(request.input("B")?.shape(), [1, 1]);
            assert_eq!(request.input_by_index(0)?.name(), "A");
            assert_eq!(request.input_by_index(2).err().unwrap().code(), ErrorCode::InvalidArg);
            assert_eq!(request.input("C").err().unwrap().code(), ErrorCode::InvalidArg);
            assert!(request.input("A\0").is_err());
            assert_eq!(request.requested_outputs()?, ["X", "Y"]);
            assert_eq!(format!("{request:?}"), r#"Request { id: "the id" }"#);
            Ok(())
        });
        let inputs = ["A", "B"].map(|name| TestInput::fp32(name, &[1, 1], &[1.0]));
        let request = TestRequest::new(inputs).id("the id").correlation(Correlation::Number(u64::MAX));
        let request = request.flags(3).timeout_us(5_000_000).output("Y").output("X");
        answer(host, way, &script, request).result().unwrap();
    });
}

#[test]
fn a_client_that_says_nothing_is_read_as_such() {
    both_ways(|host, way| {
        let script = Script::new(|_, request, _| {
            assert_eq!(request.id()?, "");
            assert_eq!(request.correlation_id()?, CorrelationId::Number(0));
            assert_eq!((request.flags()?.bits(), request.timeout_us()?), (0, 0));
            assert_eq!(request.requested_outputs()?, ["OUTPUT0"], "none named: all of the configuration's");
            Ok(())
        });
        answer(host, way, &script, request(&[1.0])).result().unwrap();
    });
}

#[test]
fn correlation_ids_can_be_strings_and_requests_cancelled() {
    both_ways(|host, way| {
        let script = Script::new(|_, request, _| {
            assert_eq!(request.correlation_id()?, CorrelationId::Text("sequence".into()));
            assert!(request.is_cancelled());
            Err(Error::cancelled("as you like"))
        });
        let request = request(&[1.0]).correlation(Correlation::text("sequence")).cancelled();
        let answer = answer(host, way, &script, request);
        assert_eq!(error(&answer), HostError::new(abi::TRITONSERVER_ERROR_CANCELLED, "as you like"));
        assert_eq!(host.faults_left(), 0);
    });
}
