//! A host that notices nothing proves nothing: every kind of misbehaviour is committed here, by hand, and must be
//! in the ledger.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod by_hand;

use std::ptr::{null, null_mut};

use by_hand::*;
use triton_fake_host::abi::*;
use triton_fake_host::*;

#[test]
fn good_behaviour_is_found_good() {
    let found = violations(|_, request| {
        send(response(request));
        release(request)
    });
    assert_found(&found, &[]);
}

#[test]
fn a_request_that_is_forgotten() {
    assert_found(&violations(|_, _| null_mut()), &["request #"]);
}

#[test]
fn an_answer_that_is_forgotten_sent_twice_or_late() {
    assert_found(&violations(|_, request| release(request)), &["released before it was answered"]);
    let found = violations(|_, request| {
        send(response(request));
        send(response(request));
        release(request)
    });
    assert_found(&found, &["answered after its final response"]);
    let found = violations(|_, request| {
        let twice = response(request);
        send(twice);
        delete(send(twice));
        release(request)
    });
    assert_found(&found, &["ResponseSend: response"]);
    let found = violations(|_, request| {
        let (first, late) = (response(request), response(request));
        send(first);
        release(request);
        send(late)
    });
    assert_found(
        &found,
        &["with 1 of its responses neither sent nor deleted", "sent after request", "answered after"],
    );
}

#[test]
fn a_release_twice_and_a_use_after_it() {
    let found = violations(|instance, request| {
        send(response(request));
        let (mut input, mut count, mut size) = (null_mut(), 0, 0);
        c! {
            TRITONBACKEND_RequestInput(request, c"IN".as_ptr(), &mut input);
            release(request);
            delete(release(request));
            delete(TRITONBACKEND_RequestInputCount(request, &mut count));
            let (n, p) = (null_mut(), null_mut());
            delete(TRITONBACKEND_InputProperties(input, n, p, null_mut(), &mut count, &mut size, null_mut()));
            delete(TRITONBACKEND_ModelInstanceReportStatistics(instance, request, true, 0, 0, 0, 0));
        }
        null_mut()
    });
    let gone = "used after it was released";
    assert_found(&found, &[gone, gone, gone, gone]);
}

#[test]
fn execute_that_fails_after_it_took_requests_over() {
    let found = violations(|_, request| {
        send(response(request));
        release(request);
        new_error()
    });
    assert_found(&found, &["Execute failed, though request"]);
    let found = violations(|_, request| {
        send(response(request));
        new_error()
    });
    assert_found(&found, &["Execute failed, though it had answered request"]);
    let found = violations(|_, request| {
        response(request);
        new_error()
    });
    assert_found(&found, &["left 1 responses", "response"]);
}

#[test]
fn errors_that_leak_or_are_deleted_twice_or_too_early() {
    let good = |request| {
        send(response(request));
        release(request)
    };
    let found = violations(move |_, request| {
        new_error();
        good(request)
    });
    assert_found(&found, &["error #"]);
    let found = violations(move |_, request| {
        let error = new_error();
        delete(error);
        delete(error);
        good(request)
    });
    assert_found(&found, &["ErrorDelete: error"]);
    let found = violations(|_, request| {
        let error = new_error();
        delete(error);
        c! {
            let answer = response(request);
            delete(TRITONBACKEND_ResponseSend(answer, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
            send(answer);
        }
        release(request)
    });
    assert_found(&found, &["ResponseSend: error"]);
    // An error of a call that nobody deletes.
    let found = violations(move |_, request| {
        let mut input = null_mut();
        c! { TRITONBACKEND_RequestInput(request, c"NO".as_ptr(), &mut input) };
        good(request)
    });
    assert_found(&found, &["no input 'NO'"]);
}

#[test]
fn writing_past_an_output() {
    for offset in [-1, 4] {
        let found = violations(move |_, request| {
            let (answer, mut output, mut buffer) = (response(request), null_mut(), null_mut());
            let (mut memory, mut id) = (TRITONSERVER_MEMORY_CPU, 0);
            c! {
                let fp32 = TRITONSERVER_TYPE_FP32;
                TRITONBACKEND_ResponseOutput(answer, &mut output, c"OUT".as_ptr(), fp32, [1].as_ptr(), 1);
                TRITONBACKEND_OutputBuffer(output, &mut buffer, 4, &mut memory, &mut id);
                // Within the host's block, so that this test itself is sound.
                buffer.cast::<u8>().offset(offset).write(0);
            }
            send(answer);
            release(request)
        });
        assert_found(&found, &["wrote past the memory of output 'OUT'"]);
    }
}

#[test]
fn statistics_that_make_no_sense() {
    let found = violations(|instance, request| {
        let now = u64::MAX;
        for times in [[4, 3, 2, 1], [0, 1, 2, 3], [now - 3, now - 2, now - 1, now]] {
            let [a, b, c, d] = times;
            delete(c! {
                TRITONBACKEND_ModelInstanceReportStatistics(instance, request, true, a, b, c, d)
            });
        }
        send(response(request));
        release(request)
    });
    assert_found(&found, &["out of order, or not on the server's clock"; 3]);
}

#[test]
fn null_and_nonsense() {
    let found = violations(|_, request| {
        c! {
            let mut name = null();
            delete(TRITONBACKEND_ModelName(null_mut(), &mut name));
            delete(TRITONBACKEND_ModelName(request.cast(), &mut name));
            delete(TRITONBACKEND_RequestId(request, null_mut()));
            delete(TRITONBACKEND_RequestInput(request, null(), null_mut()));
            delete(TRITONBACKEND_RequestRelease(request, 0));
        }
        send(response(request));
        release(request)
    });
    let place = "null was passed for the place of a result";
    let string = "null was passed for a string";
    assert_found(&found, &["null was passed for a model", "never was", place, string, "release flags 0"]);
}

#[test]
fn a_fault_strikes_the_call_it_was_meant_for_and_no_other() {
    let host = FakeHost::new();
    host.fail_next_with("TRITONBACKEND_ApiVersion", 2, HostError::new(5, "second"));
    let (mut major, mut minor) = (0, 0);
    for wanted in [None, Some("second"), None] {
        let error = c! { TRITONBACKEND_ApiVersion(&mut major, &mut minor) };
        match wanted {
            None => assert!(error.is_null()),
            Some(text) => c! {
                assert_eq!(TRITONSERVER_ErrorCode(error), 5);
                let found = std::ffi::CStr::from_ptr(TRITONSERVER_ErrorMessage(error));
                assert_eq!(found.to_str(), Ok(text));
                delete(error);
            },
        }
    }
    assert_eq!((host.faults_left(), host.calls()["TRITONBACKEND_ApiVersion"]), (0, 3));
    host.check();
}
