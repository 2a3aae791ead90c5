//! In-process requests whose tensors are in the server's memory: pinned, or a GPU's.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::child::*;
use common::*;
use std::sync::{Arc, OnceLock, Weak};
use triton_backend_api::*;

const PINNED: u32 = abi::TRITONSERVER_MEMORY_CPU_PINNED;
const GPU: u32 = abi::TRITONSERVER_MEMORY_GPU;

/// A script whose author is given the server's memory too.
fn with_memory(
    infer: impl Fn(&Author, &Request, &mut Reply, MemoryManager) -> Result<()> + Send + Sync + 'static,
) -> Script {
    let memory: Arc<OnceLock<MemoryManager>> = Arc::default();
    let told = memory.clone();
    let mut script =
        Script::new(move |author, request, reply| infer(author, request, reply, *memory.get().unwrap()));
    script.load = Arc::new(move |cx| {
        told.set(cx.memory()).unwrap();
        Ok(())
    });
    script
}

/// The kind of memory in which the child's OUT arrives, for a child that would like it on GPU 1.
fn arrives(host: &FakeHost, way: Way, place: fn(&mut bls::InferenceRequest, MemoryManager)) -> MemoryKind {
    host.child("child", |call| {
        call.respond(vec![ChildOutput::fp32("OUT", &[2], &[1.0, 2.0]).preferring(GPU, 1)]);
    });
    let (tell, told) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let script = with_memory(move |author, request, reply, memory| {
        let mut call = call(author, request)?;
        place(&mut call, memory);
        let response = call.send()?.wait(LONG, || false)?;
        let out = response.output("OUT")?;
        if out.buffer.kind().is_host() {
            assert_eq!(*out.elements::<f32>()?, [1.0, 2.0]);
        } else {
            assert_eq!(out.device_slice::<f32>()?.len(), 2);
        }
        tell.lock().unwrap().send(out.buffer.kind()).unwrap();
        echo(author, request, reply)
    });
    let answer = answer(host, way, &script);
    assert_eq!(answer.result().err(), None);
    assert_eq!(host.blocks_in_use(), 0, "given back with the response");
    told.recv().unwrap()
}

#[test]
fn outputs_of_a_call_are_where_the_caller_wants_them() {
    both_ways(|host, way| {
        host.set_gpus(2);
        assert_eq!(arrives(host, way, |_, _| ()), MemoryKind::Host);
        assert_eq!(
            arrives(host, way, |call, memory| call.place_outputs(memory, MemoryKind::Pinned)),
            MemoryKind::Pinned
        );
        assert_eq!(
            arrives(host, way, |call, memory| call.place_outputs(memory, MemoryKind::Gpu(0))),
            MemoryKind::Gpu(0)
        );
        assert_eq!(
            arrives(host, way, |call, memory| call.place_outputs(memory, MemoryKind::Host)),
            MemoryKind::Host
        );
        assert_eq!(arrives(host, way, bls::InferenceRequest::place_outputs_where_made), MemoryKind::Gpu(1));
    });
}

#[test]
fn outputs_are_on_the_host_where_the_server_has_no_such_memory() {
    both_ways(|host, way| {
        assert_eq!(
            arrives(host, way, |call, memory| call.place_outputs(memory, MemoryKind::Gpu(0))),
            MemoryKind::Host
        );
        assert_eq!(arrives(host, way, bls::InferenceRequest::place_outputs_where_made), MemoryKind::Host);
        host.fail_next("TRITONBACKEND_MemoryManagerAllocate", 1);
        assert_eq!(
            arrives(host, way, |call, memory| call.place_outputs(memory, MemoryKind::Pinned)),
            MemoryKind::Host
        );
        assert_eq!(host.faults_left(), 0);
    });
}

/// Gives memory up to a size, and as often as it has some, to models that would like a GPU's.
struct Own(std::sync::atomic::AtomicUsize);

// SAFETY: fresh memory, which nobody else knows.
unsafe impl OutputMemory for Own {
    fn take(&self, byte_size: usize, preferred: MemoryKind) -> Option<Box<dyn StableMemory>> {
        assert_eq!((byte_size, preferred), (8, MemoryKind::Gpu(1)));
        let size = self.0.load(std::sync::atomic::Ordering::Relaxed);
        (size > 0).then(|| -> Box<dyn StableMemory> { Box::new(HostMemory::zeroed(size).unwrap()) })
    }
}

#[test]
fn outputs_of_a_call_are_in_the_callers_memory_where_it_gives_some() {
    both_ways(|host, way| {
        host.set_gpus(2);
        assert_eq!(
            arrives(host, way, |call, memory| {
                call.place_outputs_where_made(memory);
                call.place_outputs_in(Arc::new(Own(8.into())));
            }),
            MemoryKind::Host,
            "the caller's memory is the host's"
        );
        assert_eq!(
            arrives(host, way, |call, memory| {
                call.place_outputs_where_made(memory);
                call.place_outputs_in(Arc::new(Own(0.into())));
            }),
            MemoryKind::Gpu(1),
            "the caller has none: the server's"
        );
        assert_eq!(
            arrives(host, way, |call, _| call.place_outputs_in(Arc::new(Own(0.into())))),
            MemoryKind::Host
        );
    });
}

/// Gives memory of whatever size, of which each counts as an owner until it comes back.
struct Lending(Weak<()>);

struct Lent(HostMemory, #[allow(dead_code)] Arc<()>);

// SAFETY: the memory within does not move.
unsafe impl StableMemory for Lent {
    fn as_ptr(&self) -> *const u8 {
        StableMemory::as_ptr(&self.0)
    }
    fn byte_size(&self) -> usize {
        StableMemory::byte_size(&self.0)
    }
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }
}

// SAFETY: fresh memory, which nobody else knows.
unsafe impl OutputMemory for Lending {
    fn take(&self, byte_size: usize, _: MemoryKind) -> Option<Box<dyn StableMemory>> {
        Some(Box::new(Lent(HostMemory::zeroed(byte_size.max(1)).unwrap(), self.0.upgrade()?)))
    }
}

#[test]
fn an_empty_output_keeps_no_memory() {
    both_ways(|host, way| {
        host.set_gpus(1);
        host.child("child", |call| {
            let full = ChildOutput::fp32("FULL", &[2], &[1.0, 2.0]);
            call.respond(vec![ChildOutput::fp32("OUT", &[0], &[]).preferring(GPU, 0), full]);
        });
        let lent = Arc::new(());
        let counted = Arc::downgrade(&lent);
        let script = with_memory(move |author, request, reply, _| {
            let mut call = call(author, request)?;
            call.request_output("FULL")?;
            call.place_outputs_in(Arc::new(Lending(counted.clone())));
            let response = call.send()?.wait(LONG, || false)?;
            assert!(response.output("OUT")?.elements::<f32>()?.is_empty());
            assert_eq!(*response.output("FULL")?.elements::<f32>()?, [1.0, 2.0]);
            echo(author, request, reply)
        });
        assert_eq!(answer(host, way, &script).result().err(), None);
        assert_eq!(Arc::strong_count(&lent), 1, "all that was lent is back");
    });
}

#[test]
fn memory_too_small_for_an_output_fails_the_call() {
    both_ways(|host, way| {
        host.child("child", |call| {
            call.respond(vec![ChildOutput::fp32("OUT", &[2], &[1.0, 2.0]).preferring(GPU, 1)]);
        });
        let script = with_memory(|author, request, _, _| {
            let mut call = call(author, request)?;
            call.place_outputs_in(Arc::new(Own(7.into())));
            call.send()?.wait(LONG, || false)?.error()
        });
        let error = answer(host, way, &script).result().err().unwrap();
        assert!(error.message.contains("7 bytes for an output of 8 bytes"), "{error}");
    });
}

#[test]
fn inputs_of_a_call_can_be_pinned_or_on_a_gpu_and_stay_until_the_release() {
    both_ways(|host, way| {
        host.set_gpus(1);
        host.child("child", |call| {
            assert_eq!(call.input("PINNED").unwrap().memory_types, [PINNED]);
            assert_eq!(call.input("PINNED").unwrap().bytes, bytes(&[3.0]));
            let far = call.input("FAR").unwrap();
            assert_eq!((far.memory_types.as_slice(), far.shape.as_slice()), (&[GPU][..], &[1][..]));
            call.respond(vec![ChildOutput::fp32("OUT", &[1], &[7.0])]);
        });
        let script = with_memory(|author, _, reply, memory| {
            let mut call = author.server.inference_request("child", -1)?;
            let mut pinned = memory.allocate(MemoryKind::Pinned, 4)?;
            pinned.elements_mut::<f32>()?.copy_from_slice(&[3.0]);
            call.input("PINNED", DataType::Fp32, &[1], pinned)?;
            call.input("FAR", DataType::Fp32, &[1], memory.allocate(MemoryKind::Gpu(0), 4)?)?;
            copy(&call.send()?.wait(LONG, || false)?, reply)
        });
        assert_eq!(answer_of(host, way, &script).bytes("OUTPUT0"), Some(bytes(&[7.0])));
        assert_eq!(host.violations(), Vec::<String>::new());
        assert_eq!(host.blocks_in_use(), 0);
    });
}
