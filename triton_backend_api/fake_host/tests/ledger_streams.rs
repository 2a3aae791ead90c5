//! Misbehaviour with several responses to a request must be in the ledger.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod by_hand;

use std::ptr::null_mut;

use by_hand::*;
use serde_json::json;
use triton_fake_host::abi::*;

const FINAL: u32 = TRITONSERVER_RESPONSE_COMPLETE_FINAL;

/// What the ledger says of a decoupled model.
fn decoupled(
    run: impl Fn(*mut TRITONBACKEND_Request, *mut TRITONBACKEND_ResponseFactory) + Send + 'static,
) -> Vec<String> {
    violations_of(json!({"model_transaction_policy": {"decoupled": true}}), move |_, request| {
        let mut factory = null_mut();
        assert!(c! { TRITONBACKEND_ResponseFactoryNew(&mut factory, request) }.is_null());
        run(request, factory);
        null_mut()
    })
}

fn next(factory: *mut TRITONBACKEND_ResponseFactory) -> *mut TRITONBACKEND_Response {
    let mut response = null_mut();
    assert!(c! { TRITONBACKEND_ResponseNewFromFactory(&mut response, factory) }.is_null());
    response
}

fn send_more(response: *mut TRITONBACKEND_Response) {
    assert!(c! { TRITONBACKEND_ResponseSend(response, 0, null_mut()) }.is_null());
}

fn end(factory: *mut TRITONBACKEND_ResponseFactory) {
    assert!(c! { TRITONBACKEND_ResponseFactorySendFlags(factory, FINAL) }.is_null());
}

fn drop_factory(factory: *mut TRITONBACKEND_ResponseFactory) -> *mut TRITONSERVER_Error {
    c! { TRITONBACKEND_ResponseFactoryDelete(factory) }
}

#[test]
fn a_stream_that_outlives_its_request_and_ends_once_is_good() {
    let found = decoupled(|request, factory| {
        send_more(response(request));
        send_more(next(factory));
        release(request);
        send_more(next(factory));
        end(factory);
        drop_factory(factory);
    });
    assert_found(&found, &[]);
}

#[test]
fn a_stream_that_is_never_ended_or_twice() {
    let found = decoupled(|request, factory| {
        send_more(next(factory));
        release(request);
        drop_factory(factory);
    });
    assert_found(&found, &["the last factory of request #"]);
    let found = decoupled(|request, factory| {
        send(next(factory));
        end(factory);
        release(request);
        drop_factory(factory);
    });
    assert_found(&found, &["was ended after its final response"]);
    let found = decoupled(|request, factory| {
        end(factory);
        send_more(next(factory));
        release(request);
        drop_factory(factory);
    });
    assert_found(&found, &["was answered after its final response"]);
}

#[test]
fn a_factory_that_is_forgotten_deleted_twice_or_used_after() {
    let found = decoupled(|request, factory| {
        end(factory);
        release(request);
    });
    assert_found(&found, &["response factory #"]);
    let found = decoupled(|request, factory| {
        end(factory);
        drop_factory(factory);
        delete(drop_factory(factory));
        let (mut response, mut cancelled) = (null_mut(), false);
        c! {
            delete(TRITONBACKEND_ResponseNewFromFactory(&mut response, factory));
            delete(TRITONBACKEND_ResponseFactoryIsCancelled(factory, &mut cancelled));
            delete(TRITONBACKEND_ResponseFactorySendFlags(factory, FINAL));
        }
        release(request);
    });
    let gone = "used after it was deleted";
    assert_found(&found, &[gone, gone, gone, gone]);
}

#[test]
fn responses_of_the_request_itself_do_not_outlive_it() {
    let found = decoupled(|request, factory| {
        let bound = response(request);
        release(request);
        send_more(bound);
        end(factory);
        drop_factory(factory);
    });
    assert_found(&found, &["with 1 of its responses neither sent nor deleted", "sent after request"]);
}

#[test]
fn outputs_are_added_before_the_next_response_is_made() {
    let found = decoupled(|request, factory| {
        let (first, mut output) = (next(factory), null_mut());
        let second = next(factory);
        c! {
            let fp32 = TRITONSERVER_TYPE_FP32;
            let late = TRITONBACKEND_ResponseOutput(first, &mut output, c"OUT".as_ptr(), fp32, [1].as_ptr(), 1);
            delete(late);
        }
        send_more(first);
        send(second);
        release(request);
        drop_factory(factory);
    });
    assert_found(&found, &["a response was given outputs after a newer one was made"]);
}

#[test]
fn several_responses_of_a_model_that_is_not_decoupled() {
    let found = violations(|_, request| {
        send_more(response(request));
        send(response(request));
        release(request)
    });
    assert_found(&found, &["its model is not decoupled"]);
}
