//! Misbehaviour with in-process requests must be in the ledger.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod by_hand;

use std::ptr::null_mut;

use by_hand::*;
use serde_json::json;
use triton_fake_host::abi::*;
use triton_fake_host::*;

/// An in-process request to the child, with callbacks that give their user pointers nothing to do.
fn inference(server: *mut TRITONSERVER_Server) -> *mut TRITONSERVER_InferenceRequest {
    let mut request = null_mut();
    c! { TRITONSERVER_InferenceRequestNew(&mut request, server, c"child".as_ptr(), -1) };
    request
}

fn server_of(instance: *mut TRITONBACKEND_ModelInstance) -> *mut TRITONSERVER_Server {
    let (mut model, mut server) = (null_mut(), null_mut());
    c! {
        TRITONBACKEND_ModelInstanceModel(instance, &mut model);
        TRITONBACKEND_ModelServer(model, &mut server);
    }
    server
}

unsafe extern "C" fn keep(_: *mut TRITONSERVER_InferenceRequest, _: u32, _: *mut std::ffi::c_void) {}
unsafe extern "C" fn ignore(_: *mut TRITONSERVER_InferenceResponse, _: u32, _: *mut std::ffi::c_void) {}
unsafe extern "C" fn release_nothing(
    _: *mut TRITONSERVER_ResponseAllocator,
    _: *mut std::ffi::c_void,
    _: *mut std::ffi::c_void,
    _: usize,
    _: TRITONSERVER_MemoryType,
    _: i64,
) -> *mut TRITONSERVER_Error {
    null_mut()
}
#[allow(clippy::too_many_arguments)] // the ABI's
unsafe extern "C" fn allocate_nothing(
    _: *mut TRITONSERVER_ResponseAllocator,
    _: *const std::ffi::c_char,
    _: usize,
    _: TRITONSERVER_MemoryType,
    _: i64,
    _: *mut std::ffi::c_void,
    _: *mut *mut std::ffi::c_void,
    _: *mut *mut std::ffi::c_void,
    _: *mut TRITONSERVER_MemoryType,
    _: *mut i64,
) -> *mut TRITONSERVER_Error {
    null_mut()
}

#[test]
fn in_process_requests_that_leak_or_are_touched_while_the_server_has_them() {
    let found = violations(|instance, request| {
        let server = server_of(instance);
        let never_sent = inference(server);
        delete(c! { TRITONSERVER_ServerInferAsync(server, never_sent, null_mut()) });
        delete(c! { TRITONSERVER_InferenceRequestCancel(never_sent) });
        send(response(request));
        release(request)
    });
    assert_found(&found, &["without its two callbacks", "not under way", "in-process request #"]);
}

#[test]
fn what_is_given_back_by_the_server_must_be_deleted_and_allocators_outlive_their_use() {
    let host = FakeHost::new();
    host.child("child", |call| {
        call.wait_for_cancellation(std::time::Duration::from_secs(20));
        call.respond(vec![ChildOutput::fp32("OUT", &[1], &[1.0])]);
    });
    *EXECUTE.lock().unwrap() = Some(Box::new(|instance, request| {
        let (server, mut allocator, mut trace, mut child) =
            (server_of(instance), null_mut(), null_mut(), null_mut());
        c! {
            TRITONSERVER_ResponseAllocatorNew(
                &mut allocator,
                Some(allocate_nothing),
                Some(release_nothing),
                None,
            );
            let call = inference(server);
            TRITONSERVER_InferenceRequestSetReleaseCallback(call, Some(keep), null_mut());
            TRITONSERVER_InferenceRequestSetResponseCallback(
                call,
                allocator,
                null_mut(),
                Some(ignore),
                null_mut(),
            );
            TRITONBACKEND_RequestTrace(request, &mut trace);
            TRITONSERVER_InferenceTraceSpawnChildTrace(trace, &mut child);
            TRITONSERVER_ServerInferAsync(server, call, child);
            delete(TRITONSERVER_InferenceTraceDelete(child)); // the server's since the call
            delete(TRITONSERVER_InferenceTraceDelete(trace)); // the request's
            delete(TRITONSERVER_InferenceRequestSetId(call, c"x".as_ptr()));
            delete(TRITONSERVER_InferenceRequestDelete(call));
            TRITONSERVER_ResponseAllocatorDelete(allocator);
            TRITONSERVER_InferenceTraceSpawnChildTrace(trace, &mut child); // never ended
            TRITONSERVER_InferenceRequestCancel(call);
        }
        send(response(request));
        release(request)
    }));
    let model = host.load(BY_HAND, ModelSpec::new("m", json!({}))).unwrap();
    model.execute([TestRequest::new([]).traced()]);
    model.unload();
    let found = host.violations();
    assert_found(
        &found,
        &[
            "trace", // handed to the server
            "the trace of a request was deleted",
            "the request is the server's",
            "the request is the server's",
            "an allocator was deleted while 1 requests",
            "an allocator was deleted while a request under way needed it",
            "in-process request",
            "in-process response",
            "trace",
        ],
    );
}

#[test]
fn a_child_model_that_fails_its_own_checks_fails_the_test() {
    let host = FakeHost::new();
    host.child("child", |_| panic!("not what the child expected"));
    *EXECUTE.lock().unwrap() = Some(Box::new(|instance, request| {
        let (server, mut allocator) = (server_of(instance), null_mut());
        c! {
            TRITONSERVER_ResponseAllocatorNew(
                &mut allocator,
                Some(allocate_nothing),
                Some(release_nothing),
                None,
            );
            let call = inference(server);
            TRITONSERVER_InferenceRequestSetReleaseCallback(call, Some(keep), null_mut());
            TRITONSERVER_InferenceRequestSetResponseCallback(
                call,
                allocator,
                null_mut(),
                Some(ignore),
                null_mut(),
            );
            TRITONSERVER_ServerInferAsync(server, call, null_mut());
        }
        send(response(request));
        release(request)
    }));
    let model = host.load(BY_HAND, ModelSpec::new("m", json!({}))).unwrap();
    model.execute([TestRequest::new([])]);
    model.unload();
    assert!(host.violations().iter().any(|found| found.contains("not what the child expected")));
}
