//! A backend in C's manner, driven by hand.

#![allow(dead_code)] // each test executable uses its part
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

use std::ptr::null_mut;
use std::sync::Mutex;

use serde_json::json;
use triton_fake_host::abi::*;
use triton_fake_host::*;

/// Calls of the host under test. What they are given is wrong on purpose.
macro_rules! c {
    ($($calls:tt)*) => {{
        // SAFETY: strings and places are live; handles are numbers to this host, which survives every misuse.
        unsafe { $($calls)* }
    }};
}

pub type Execute =
    dyn Fn(*mut TRITONBACKEND_ModelInstance, *mut TRITONBACKEND_Request) -> *mut TRITONSERVER_Error + Send;

/// What the backend below does with the one request of an execution.
pub static EXECUTE: Mutex<Option<Box<Execute>>> = Mutex::new(None);

unsafe extern "C" fn fine<T>(_: *mut T) -> *mut TRITONSERVER_Error {
    null_mut()
}

unsafe extern "C" fn attributes(
    _: *mut TRITONBACKEND_Backend,
    _: *mut TRITONBACKEND_BackendAttribute,
) -> *mut TRITONSERVER_Error {
    null_mut()
}

unsafe extern "C" fn execute(
    instance: *mut TRITONBACKEND_ModelInstance,
    requests: *mut *mut TRITONBACKEND_Request,
    _: u32,
) -> *mut TRITONSERVER_Error {
    EXECUTE.lock().unwrap().as_ref().unwrap()(instance, c! { *requests })
}

/// A backend in C's manner, which frees nothing by itself.
pub const BY_HAND: EntryPoints = EntryPoints {
    initialize: fine,
    finalize: fine,
    get_backend_attribute: attributes,
    model_initialize: fine,
    model_finalize: fine,
    instance_initialize: fine,
    instance_finalize: fine,
    instance_ready: fine,
    instance_execute: execute,
};

/// What the ledger says after one request was executed in this way.
pub fn violations(
    run: impl Fn(*mut TRITONBACKEND_ModelInstance, *mut TRITONBACKEND_Request) -> *mut TRITONSERVER_Error
    + Send
    + 'static,
) -> Vec<String> {
    violations_of(json!({}), run)
}

/// The same for a model of that configuration.
pub fn violations_of(
    config: serde_json::Value,
    run: impl Fn(*mut TRITONBACKEND_ModelInstance, *mut TRITONBACKEND_Request) -> *mut TRITONSERVER_Error
    + Send
    + 'static,
) -> Vec<String> {
    let host = FakeHost::new();
    host.child("child", |call| call.finish());
    *EXECUTE.lock().unwrap() = Some(Box::new(run));
    let model = host.load(BY_HAND, ModelSpec::new("m", config)).unwrap();
    let input = TestInput::fp32("IN", &[1], &[1.0]);
    model.execute([TestRequest::new([input]).traced()]);
    model.unload();
    host.violations()
}

#[track_caller]
pub fn assert_found(found: &[String], wanted: &[&str]) {
    let all = found.len() == wanted.len() && found.iter().zip(wanted).all(|(is, part)| is.contains(part));
    assert!(all, "found {found:#?}, wanted {wanted:#?}");
}

pub fn response(request: *mut TRITONBACKEND_Request) -> *mut TRITONBACKEND_Response {
    let mut response = null_mut();
    assert!(c! { TRITONBACKEND_ResponseNew(&mut response, request) }.is_null());
    response
}

pub fn send(response: *mut TRITONBACKEND_Response) -> *mut TRITONSERVER_Error {
    c! { TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, null_mut()) }
}

pub fn release(request: *mut TRITONBACKEND_Request) -> *mut TRITONSERVER_Error {
    c! { TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL) }
}

pub fn new_error() -> *mut TRITONSERVER_Error {
    c! { TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, c"text".as_ptr()) }
}

pub fn delete(error: *mut TRITONSERVER_Error) {
    assert!(!error.is_null());
    c! { TRITONSERVER_ErrorDelete(error) };
}

pub(crate) use c;
