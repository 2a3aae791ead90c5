//! Typed views: what can be used where it lies is, and what cannot says why.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::*;
use triton_backend_api::*;

const VALUES: [f32; 5] = [1.0, -2.5, 0.0, 7.0, 5.0];
const GPU: u32 = abi::TRITONSERVER_MEMORY_GPU;

fn values() -> TestInput {
    TestInput::fp32("INPUT0", &[1, 5], &VALUES)
}

/// Runs `look` on INPUT0; what it fails with is the answer.
fn look(
    host: &FakeHost,
    way: Way,
    input: TestInput,
    look: fn(&Input<'_>) -> Result<()>,
) -> Result<(), HostError> {
    let script = Script::new(move |_, request, _| look(&request.input("INPUT0")?));
    way.load(host, &script).execute([TestRequest::new([input])]).wait()[0].result().map(|_| ())
}

#[test]
fn a_slice_is_the_clients_own_memory() {
    both_ways(|host, way| {
        for input in
            [values(), values().misaligned(4), values().memory(abi::TRITONSERVER_MEMORY_CPU_PINNED, 0)]
        {
            let there = look(host, way, input, |input| {
                let slice = input.slice::<f32>()?;
                assert_eq!(slice, VALUES);
                assert_eq!(slice.as_ptr().cast(), input.buffer(0)?.as_ptr());
                Ok(())
            });
            assert_eq!(there, Ok(()));
        }
        for cuts in [&[][..], &[0, 0]] {
            let empty = TestInput::fp32("INPUT0", &[1, 0], &[]).split(cuts).misaligned(1);
            let there = look(host, way, empty, |input| {
                assert!(input.buffer_count() > 1 || input.slice::<f32>()?.is_empty());
                Ok(())
            });
            assert_eq!(there, Ok(()));
        }
    });
}

#[test]
fn what_cannot_be_used_in_place_says_why() {
    both_ways(|host, way| {
        for (input, why) in [
            (values().misaligned(2), "not at a multiple of 4"),
            (values().split(&[8]), "it lies in 2 buffers"),
            (values().memory(GPU, 3), "it lies in memory of GPU 3"),
        ] {
            let refusal = look(host, way, input, |input| input.slice::<f32>().map(|_| ())).unwrap_err();
            assert_eq!(refusal.code, abi::TRITONSERVER_ERROR_UNSUPPORTED);
            assert!(refusal.message.starts_with("input 'INPUT0' cannot be used where it is: "), "{refusal}");
            assert!(refusal.message.contains(why), "{refusal}");
        }
        let refusal = look(host, way, values(), |input| input.slice::<i32>().map(|_| ())).unwrap_err();
        assert_eq!(refusal.message, "input 'INPUT0' is FP32, read as INT32");
        let short = TestInput::fp32("INPUT0", &[1, 6], &VALUES).saying_size(24);
        let refusal = look(host, way, short, |input| input.slice::<f32>().map(|_| ())).unwrap_err();
        assert!(refusal.message.contains("its buffers hold 20 bytes, its description says 24"), "{refusal}");
    });
}

#[test]
fn a_view_of_a_gpu_has_an_address_and_no_bytes() {
    both_ways(|host, way| {
        let there = look(host, way, values().memory(GPU, 3), |input| {
            let view = input.device_slice::<f32>()?;
            assert_eq!((view.device(), view.len(), view.is_empty()), (3, 5, false));
            assert_eq!(view.as_ptr().cast(), input.buffer(0)?.as_ptr());
            assert!(format!("{view:?}").starts_with("5 FP32 at 0x"), "{view:?}");
            Ok(())
        });
        assert_eq!(there, Ok(()));
        for (input, why) in [
            (values(), "it lies in host memory, not in that of a GPU"),
            (values().memory(GPU, 0).misaligned(2), "not at a multiple of 4"),
            (values().memory(GPU, 0).split(&[4]), "it lies in 2 buffers"),
        ] {
            let refusal =
                look(host, way, input, |input| input.device_slice::<f32>().map(|_| ())).unwrap_err();
            assert_eq!(refusal.code, abi::TRITONSERVER_ERROR_UNSUPPORTED);
            assert!(refusal.message.contains(why), "{refusal}");
        }
        let wrong = look(host, way, values().memory(GPU, 0), |input| input.device_slice::<u8>().map(|_| ()));
        assert_eq!(wrong.unwrap_err().message, "input 'INPUT0' is FP32, read as UINT8");
    });
}

#[test]
fn every_buffer_is_there_with_its_own_memory() {
    both_ways(|host, way| {
        let there = look(host, way, values().split(&[4, 9]), |input| {
            let buffers = input.buffers()?;
            assert_eq!(buffers.iter().map(|buffer| buffer.byte_size()).collect::<Vec<_>>(), [4, 5, 11]);
            assert_eq!(buffers[0].host(), Some(&VALUES[0].to_ne_bytes()[..]));
            assert!(input.buffer(3).is_err());
            Ok(())
        });
        assert_eq!(there, Ok(()));
    });
}

#[test]
fn an_instance_gets_the_buffers_meant_for_its_host_policy() {
    both_ways(|host, way| {
        let near = || values().split(&[8]).for_host_policy("gpu_0", bytes(&[9.0; 5]), (GPU, 0));
        let there = look(host, way, near(), |input| {
            assert_eq!((input.buffer_count(), &*input.elements::<f32>()?), (2, &VALUES[..]));
            let near = input.for_host_policy("gpu_0")?;
            assert_eq!((near.buffer_count(), near.byte_size(), near.shape()), (1, 20, input.shape()));
            assert_eq!(near.device_slice::<f32>()?.device(), 0);
            let others = input.for_host_policy("cpu")?;
            assert_eq!((others.buffer_count(), &*others.elements::<f32>()?), (2, &VALUES[..]));
            assert!(input.for_host_policy("a\0b").is_err());
            Ok(())
        });
        assert_eq!(there, Ok(()));
        let odd = values().for_host_policy("numa", vec![0; 7], (abi::TRITONSERVER_MEMORY_CPU, 0));
        let refusal = look(host, way, odd, |input| input.for_host_policy("numa").map(|_| ())).unwrap_err();
        assert!(refusal.message.contains("7 bytes came for FP32 [1, 5], which takes 20"), "{refusal}");
    });
}

#[test]
fn truth_values_are_elements_too() {
    both_ways(|host, way| {
        let input = TestInput::new("INPUT0", abi::TRITONSERVER_TYPE_BOOL, &[3], vec![0, 1, 7]);
        let there = look(host, way, input, |input| {
            assert!(input.slice::<Bool>()?.iter().map(|value| value.get()).eq([false, true, true]));
            assert!(input.slice::<u8>().is_err());
            Ok(())
        });
        assert_eq!(there, Ok(()));
    });
}

#[test]
fn outputs_are_written_as_their_type_and_nothing_else() {
    both_ways(|host, way| {
        for misalign in [0, 2, 4] {
            let script = Script::new(move |_, _, reply| {
                let mut output = reply.output("OUTPUT0", DataType::Fp32, &[1, 5])?;
                assert_eq!(output.data_type(), DataType::Fp32);
                assert_eq!(
                    output.write(&[1, 2]).unwrap_err().message(),
                    "output 'OUTPUT0' is FP32, written as INT32"
                );
                let refusal = output.write(&[1.0f32]).unwrap_err();
                assert_eq!(refusal.message(), "output 'OUTPUT0' takes 5 elements; 1 were given");
                match output.slice_mut::<f32>() {
                    Ok(slice) => slice.copy_from_slice(&VALUES),
                    Err(e) => {
                        assert!(misalign == 2 && e.message().contains("not at a multiple of 4"), "{e}");
                        output.write(&VALUES)?;
                    }
                }
                assert!(output.slice_mut::<i32>().is_err() && output.device_slice_mut::<f32>().is_err());
                assert!(reply.output("EMPTY", DataType::Fp32, &[0])?.slice_mut::<f32>()?.is_empty());
                Ok(())
            });
            let request = request(&[1.0]).output_misaligned("OUTPUT0", misalign);
            let answer = way.load(host, &script).execute([request]).wait().remove(0);
            assert_eq!(answer.result().unwrap().outputs[0].bytes, Some(bytes(&VALUES)));
        }
    });
}

#[test]
fn outputs_on_a_gpu_are_addressed_and_not_touched() {
    both_ways(|host, way| {
        let script = Script::new(|_, _, reply| {
            let mut output = reply.output_in(MemoryKind::Gpu(1), "OUTPUT0", DataType::Fp32, &[1, 5])?;
            assert_eq!(output.kind(), MemoryKind::Gpu(1));
            assert!(
                output.bytes_mut().is_err()
                    && output.write(&VALUES).is_err()
                    && output.slice_mut::<f32>().is_err()
            );
            let mut view = output.device_slice_mut::<f32>()?;
            assert_eq!((view.device(), view.len(), view.is_empty()), (1, 5, false));
            assert!(!view.as_mut_ptr().is_null() && format!("{view:?}").ends_with("of GPU 1"));
            assert!(output.device_slice_mut::<u8>().is_err());
            Ok(())
        });
        let answers =
            way.load(host, &script).execute([request(&[1.0]).output_memory("OUTPUT0", GPU, 1)]).wait();
        let untouched = answers[0].result().unwrap().outputs[0].bytes.clone();
        assert_eq!(untouched, Some(vec![0xA5; 20]), "the host declares its own memory to be a GPU's");
    });
}
