//! The server's memory: host, pinned and a GPU's, owned and freed once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::*;
use std::sync::{Arc, Mutex};
use triton_backend_api::*;

/// Runs `test` with the memory of a server that has this many GPUs.
fn with_memory(gpus: i64, test: impl Fn(&FakeHost, MemoryManager)) {
    let host = FakeHost::new();
    host.set_gpus(gpus);
    let memory = Arc::new(Mutex::new(None));
    let told = memory.clone();
    let mut script = Script::new(echo);
    script.load = Arc::new(move |cx| {
        *told.lock().unwrap() = Some(cx.memory());
        Ok(())
    });
    let model = Way::Waiting.load(&host, &script);
    let memory = memory.lock().unwrap().take().unwrap();
    test(&host, memory);
    model.unload();
    host.check();
}

#[test]
fn host_and_pinned_memory_is_zeroed_typed_and_freed_with_its_holder() {
    with_memory(0, |host, memory| {
        for kind in [MemoryKind::Host, MemoryKind::Pinned] {
            let mut block = memory.allocate(kind, 10).unwrap();
            assert_eq!((block.kind(), block.byte_size(), host.blocks_in_use()), (kind, 10, 1));
            assert_eq!(block.elements::<u8>().unwrap(), [0; 10]);
            block.elements_mut::<f32>().unwrap().copy_from_slice(&[1.5, -2.0]);
            assert_eq!(
                block.elements::<f32>().unwrap(),
                [1.5, -2.0],
                "what is too short for one is left out"
            );
            let moved =
                std::thread::spawn(move || block.elements::<u8>().map(|bytes| bytes[3])).join().unwrap();
            assert_eq!(moved, Ok(1.5f32.to_ne_bytes()[3]));
            assert_eq!(host.blocks_in_use(), 0, "freed on the thread that held it last");
        }
    });
}

#[test]
fn memory_of_a_gpu_is_an_address_that_nothing_here_reads() {
    with_memory(2, |host, memory| {
        let mut block = memory.allocate(MemoryKind::Gpu(1), 12).unwrap();
        for result in [block.elements::<u8>().err(), block.elements_mut::<u8>().err()] {
            let wrong = result.unwrap();
            assert_eq!(wrong.code(), ErrorCode::Unsupported);
            assert!(wrong.message().contains("12 bytes of memory of GPU 1"), "{wrong}");
        }
        let address = block.as_ptr();
        let view = block.device::<f32>().unwrap();
        assert_eq!((view.device(), view.len(), view.as_ptr().cast()), (1, 3, address));
        let mut view = block.device_mut::<u16>().unwrap();
        assert_eq!((view.device(), view.len(), view.as_mut_ptr().cast::<u8>().cast_const()), (1, 6, address));
        assert_eq!((StableMemory::kind(&block), StableMemory::byte_size(&block)), (MemoryKind::Gpu(1), 12));
        let wrong = memory.allocate(MemoryKind::Host, 4).unwrap().device::<u8>().unwrap_err();
        assert!(wrong.message().contains("host memory"), "{wrong}");
        drop(block);
        assert_eq!(host.blocks_in_use(), 0);
    });
}

#[test]
fn what_the_server_cannot_give_is_an_error_that_names_it() {
    with_memory(1, |host, memory| {
        let refused = |kind, size| memory.allocate(kind, size).err().unwrap();
        let wrong = refused(MemoryKind::Gpu(1), 7);
        assert_eq!(wrong.code(), ErrorCode::Unsupported);
        assert!(wrong.message().contains("7 bytes of memory of GPU 1: this server has no memory"), "{wrong}");
        let wrong = refused(MemoryKind::Pinned, 1 << 50);
        assert_eq!(wrong.code(), ErrorCode::Unavailable);
        assert!(wrong.message().contains("pinned host memory"), "{wrong}");
        assert_eq!(refused(MemoryKind::Host, usize::MAX).code(), ErrorCode::InvalidArg);
        let calls = host.calls().get("TRITONBACKEND_MemoryManagerAllocate").copied();
        let wrong = refused(MemoryKind::Unknown(9), 1);
        assert_eq!(wrong.code(), ErrorCode::Unsupported);
        assert!(wrong.message().contains("memory of unknown type 9"), "{wrong}");
        for kind in [MemoryKind::Host, MemoryKind::Gpu(5)] {
            assert_eq!(memory.allocate(kind, 0).unwrap().byte_size(), 0);
        }
        assert!(memory.allocate(MemoryKind::Host, 0).unwrap().elements::<f64>().unwrap().is_empty());
        let asked = host.calls().get("TRITONBACKEND_MemoryManagerAllocate").copied();
        assert_eq!(asked, calls, "rule 7: an unknown kind is not passed on; no bytes need no memory");
    });
}

#[test]
fn the_servers_memory_can_be_the_input_of_an_in_process_request() {
    both_ways(|host, way| {
        host.set_gpus(1);
        host.child("child", |call| {
            let kinds =
                (call.input("PINNED").unwrap().memory_types, call.input("DEVICE").unwrap().memory_types);
            assert_eq!(
                kinds,
                (vec![abi::TRITONSERVER_MEMORY_CPU_PINNED], vec![abi::TRITONSERVER_MEMORY_GPU])
            );
            call.respond(vec![ChildOutput::fp32("OUT", &[1, 1], &[4.0])]);
        });
        let manager = Arc::new(Mutex::new(None));
        let told = manager.clone();
        let mut script = Script::new(move |author, request, reply| {
            let manager: MemoryManager = manager.lock().unwrap().unwrap();
            let mut pinned = manager.allocate(MemoryKind::Pinned, 4)?;
            pinned.elements_mut::<f32>()?[0] = 2.0;
            let mut call = author.server.inference_request("child", -1)?;
            call.inherit(request)?;
            call.input("PINNED", DataType::Fp32, &[1, 1], pinned)?;
            call.input("DEVICE", DataType::Fp32, &[1, 1], manager.allocate(MemoryKind::Gpu(0), 4)?)?;
            let response = call.send()?.wait(child::LONG, || false)?;
            child::copy(&response, reply)
        });
        script.load = Arc::new(move |cx| {
            *told.lock().unwrap() = Some(cx.memory());
            Ok(())
        });
        let model = way.load(host, &script);
        let answers = model.execute([request(&[1.0])]).wait();
        assert_eq!(answers[0].bytes("OUTPUT0"), Some(bytes(&[4.0])), "{:?}", answers[0]);
        model.unload();
        // The network lets go of its inputs a moment after its answer.
        assert!(soon(|| host.blocks_in_use() == 0), "{} blocks are kept", host.blocks_in_use());
    });
}
