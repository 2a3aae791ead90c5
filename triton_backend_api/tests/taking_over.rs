//! Requests that are taken over: Execute returns, the answer comes later.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::*;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use triton_backend_api::*;

/// A script whose author keeps what it is given; the test gets it.
fn keeping() -> (Script, Receiver<(OwnedRequest, OwnedReply)>) {
    let (sender, receiver) = channel();
    let sender = Mutex::new(sender);
    let script =
        Script::start(move |_, request, reply| sender.lock().unwrap().send((request, reply)).unwrap());
    (script, receiver)
}

#[test]
fn execute_returns_before_the_answer() {
    let host = FakeHost::new();
    let (script, kept) = keeping();
    let model = Way::Parallel.load(&host, &script);
    let execution = model.execute([request(&[1.0]), request(&[2.0])]);
    assert_eq!((execution.result.clone(), execution.open()), (Ok(()), 2));
    for _ in 0..2 {
        let (request, mut reply) = kept.recv().unwrap();
        let values = request.input("INPUT0").unwrap().elements::<f32>().unwrap().into_owned();
        drop(request); // its answer may come after: the reply keeps it
        reply
            .output("OUTPUT0", DataType::Fp32, &[1, 1])
            .unwrap()
            .bytes_mut()
            .unwrap()
            .copy_from_slice(&bytes(&values));
        reply.send(Ok(()));
    }
    let answers = execution.wait();
    assert_eq!(answers[0].bytes("OUTPUT0"), Some(bytes(&[1.0])));
    assert_eq!(answers[1].bytes("OUTPUT0"), Some(bytes(&[2.0])));
    model.unload();
    script.assert_freed();
    host.check();
}

#[test]
fn the_request_is_released_only_when_both_halves_are_gone() {
    let host = FakeHost::new();
    let (script, kept) = keeping();
    let model = Way::Parallel.load(&host, &script);
    let execution = model.execute([request(&[1.0])]);
    let (request, reply) = kept.recv().unwrap();
    reply.send(Ok(()));
    assert_eq!((execution.answers()[0].responses.len(), execution.open()), (1, 1), "answered, not released");
    assert!(request.input("INPUT0").is_ok(), "inputs are there until the request is dropped");
    drop(request);
    assert_eq!(execution.wait()[0].released, 1);
    drop(model);
    host.check();
}

#[test]
fn swapped_replies_keep_their_own_requests_alive() {
    let host = FakeHost::new();
    let (script, kept) = keeping();
    let model = Way::Parallel.load(&host, &script);
    let execution = model.execute([request(&[1.0]), request(&[2.0])]);
    let (first, mut first_reply) = kept.recv().unwrap();
    let (second, mut second_reply) = kept.recv().unwrap();
    std::mem::swap(&mut *first_reply, &mut *second_reply);
    drop((first, second));
    second_reply.send(Ok(()));
    first_reply.send(Ok(()));
    assert_eq!(execution.wait().len(), 2);
    model.unload();
    script.assert_freed();
    host.check();
}

#[test]
fn a_request_dropped_unanswered_is_answered_with_an_error_and_released() {
    let host = FakeHost::new();
    for first in ["request", "reply"] {
        let script = Script::start(move |_, request, reply| match first {
            "request" => {
                drop(request);
                drop(reply);
            }
            _ => {
                drop(reply);
                drop(request);
            }
        });
        let answers = Way::Parallel.load(&host, &script).execute([request(&[1.0])]).wait();
        assert_eq!((answers[0].responses.len(), answers[0].released), (1, 1));
        assert_eq!(error(&answers[0]).code, abi::TRITONSERVER_ERROR_INTERNAL);
        assert!(error(&answers[0]).message.contains("without an answer"));
        assert!(!answers[0].statistics[0].success);
    }
    host.check();
}

#[test]
fn a_reply_that_outlives_a_panic_elsewhere_still_answers() {
    let host = FakeHost::new();
    let (sender, kept) = channel();
    let sender = Mutex::new(sender);
    let script = Script::start(move |_, request, reply| {
        sender.lock().unwrap().send(reply).unwrap();
        drop(request);
        panic!("after giving the reply away")
    });
    let model = Way::Parallel.load(&host, &script);
    let execution = model.execute([request(&[1.0])]);
    kept.recv().unwrap().send(Ok(()));
    assert!(execution.wait()[0].result().is_ok());
    drop(model);
    host.check();
}

#[test]
fn rule_8_a_panic_on_a_thread_of_the_authors_answers_before_the_release() {
    let host = FakeHost::new();
    let script = Script::start(|_, request, reply| {
        let work = move || {
            let _both = (reply, request);
            panic!("far away");
        };
        assert!(std::thread::spawn(work).join().is_err());
    });
    let answers = Way::Parallel.load(&host, &script).execute([request(&[1.0])]).wait();
    assert_eq!((answers[0].responses.len(), answers[0].released), (1, 1));
    assert!(error(&answers[0]).message.contains("without an answer"), "{}", error(&answers[0]));
    host.check();
}

#[test]
fn no_more_than_max_in_flight_and_execute_waits_for_a_place() {
    let host = FakeHost::new();
    for limit in [1, 2, 3] {
        let (mut script, kept) = keeping();
        script.max_in_flight = limit;
        let model = Way::Parallel.load(&host, &script);
        let returned = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let execute = scope.spawn(|| {
                let execution = model.execute((0..limit + 1).map(|_| request(&[1.0])));
                returned.store(true, SeqCst);
                execution.wait()
            });
            let mut inside: Vec<_> = (0..limit).map(|_| kept.recv().unwrap()).collect();
            assert!(kept.recv_timeout(Duration::from_millis(50)).is_err(), "one too many was started");
            assert!(!returned.load(SeqCst), "Execute waits while {limit} are in flight");
            inside.pop().unwrap().1.send(Ok(()));
            inside.push(kept.recv_timeout(child::LONG).unwrap());
            inside.into_iter().for_each(|(_, reply)| reply.send(Ok(())));
            let answers = execute.join().unwrap();
            assert!(answers.iter().all(|answer| answer.result().is_ok() && answer.released == 1));
        });
    }
    host.check();
}

#[test]
fn the_time_spent_waiting_for_a_place_is_not_in_the_statistics() {
    let host = FakeHost::new();
    let mut script = Script::start(|_, request, reply| {
        std::thread::sleep(Duration::from_millis(40));
        drop(request);
        reply.send(Ok(()));
    });
    script.max_in_flight = 1;
    let answers = Way::Parallel.load(&host, &script).execute([request(&[1.0]), request(&[1.0])]).wait();
    let [first, second] = [0, 1].map(|index: usize| answers[index].statistics[0].times);
    assert!(second[0] >= first[3], "the second starts when the first is done: {first:?} {second:?}");
    host.check();
}

#[test]
fn rule_6_finalize_waits_until_nothing_is_in_flight() {
    let host = FakeHost::new();
    let (mut script, kept) = keeping();
    let unloaded = Arc::new(AtomicBool::new(false));
    let set = unloaded.clone();
    script.dropped = Arc::new(move |what| set.store(what == "model", SeqCst));
    let model = Way::Parallel.load(&host, &script);
    let execution = model.execute([request(&[1.0])]);
    let (request, reply) = kept.recv().unwrap();
    std::thread::scope(|scope| {
        // The server would not finalize now; a finalize that does not rely on that is safe either way.
        let unload = scope.spawn(|| model.unload());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!unloaded.load(SeqCst), "a request is in flight");
        drop(request);
        reply.send(Ok(()));
        unload.join().unwrap();
    });
    assert!(unloaded.load(SeqCst));
    assert!(execution.wait()[0].result().is_ok());
    script.assert_freed();
    host.check();
}

struct SlowEnd(Arc<AtomicUsize>);

impl Drop for SlowEnd {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_millis(50));
        self.0.fetch_add(1, SeqCst);
    }
}

thread_local! {
    static END: RefCell<Option<SlowEnd>> = const { RefCell::new(None) };
}

#[test]
fn rule_6_threads_are_the_instances_own_and_ended_by_finalize() {
    let host = FakeHost::new();
    let ended = Arc::new(AtomicUsize::new(0));
    let count = ended.clone();
    let barrier = std::sync::Barrier::new(3);
    let mut script = Script::start(move |_, request, reply| {
        assert_eq!(std::thread::current().name(), Some("under_test_0"));
        END.with(|end| *end.borrow_mut() = Some(SlowEnd(count.clone())));
        barrier.wait(); // so that each of the three has a thread of its own
        drop(request);
        reply.send(Ok(()));
    });
    script.max_in_flight = 3;
    let model = Way::Parallel.load(&host, &script);
    let answers = model.execute((0..3).map(|_| request(&[1.0]))).wait();
    assert!(answers.iter().all(|answer| answer.result().is_ok()));
    model.unload();
    assert_eq!(ended.load(SeqCst), 3, "a thread that is joined has run its last destructor");
    script.assert_freed();
    host.check();
}

#[test]
fn rule_6_the_release_of_the_last_request_may_unload_the_model_on_the_same_thread() {
    for way in WAYS {
        for count in [1, 4] {
            let host = FakeHost::new();
            let (entered, inside) = channel();
            let (leave, left) = channel();
            let (entered, left) = (Mutex::new(entered), Mutex::new(left));
            let mut script = Script::new(move |author, request, reply| {
                entered.lock().unwrap().send(()).unwrap();
                left.lock().unwrap().recv().unwrap();
                echo(author, request, reply)
            });
            let unloaded_on = Arc::new(Mutex::new(None));
            let note = unloaded_on.clone();
            script.dropped = Arc::new(move |what| {
                if what == "instance" {
                    *note.lock().unwrap() = std::thread::current().name().map(str::to_owned);
                }
            });
            let model = way.load(&host, &script);
            std::thread::scope(|scope| {
                let (returned, has_returned) = channel();
                let model = &model;
                let execute = scope.spawn(move || {
                    let execution = model.execute((0..count).map(|_| request(&[1.0])));
                    returned.send(()).unwrap();
                    execution.wait()
                });
                inside.recv().unwrap();
                let on_the_pool = (way, count) == (Way::Parallel, 1);
                if on_the_pool {
                    has_returned.recv().unwrap(); // nothing but the request holds the model now
                }
                model.unload_when_idle(); // not now: a request is open
                assert!(unloaded_on.lock().unwrap().is_none());
                (0..count).for_each(|_| leave.send(()).unwrap());
                let answers = execute.join().unwrap();
                assert!(answers.iter().all(|answer| answer.result().is_ok() && answer.released == 1));
                assert!(model.wait_until_unloaded(), "finalizing on the pool's own thread hangs");
                if on_the_pool {
                    assert_eq!(
                        unloaded_on.lock().unwrap().as_deref(),
                        Some("under_test_0"),
                        "the case that matters"
                    );
                }
            });
            drop(model);
            soon(|| Arc::strong_count(&script.alive) == 2); // the thread that could not wait for itself is on its way out
            script.assert_freed();
            host.check();
        }
    }
}

#[test]
fn a_cancellation_is_seen_by_whoever_holds_the_request() {
    let host = FakeHost::new();
    let (script, kept) = keeping();
    let model = Way::Parallel.load(&host, &script);
    let execution = model.execute([request(&[1.0])]);
    let (request, reply) = kept.recv().unwrap();
    assert!(!request.is_cancelled());
    execution.cancel(0);
    assert!(request.is_cancelled());
    host.fail_next("TRITONBACKEND_RequestIsCancelled", 1);
    assert!(!request.is_cancelled(), "a server that cannot tell has not cancelled it");
    reply.send(Err(Error::cancelled("given up")));
    drop(request);
    assert_eq!(error(&execution.wait()[0]).code, abi::TRITONSERVER_ERROR_CANCELLED);
    drop(model);
    host.check();
}

#[test]
fn many_requests_from_many_threads_end_well() {
    let host = FakeHost::new();
    let mut script = Script::new(|author, request, reply| match request.id()?.as_str() {
        "fails" => Err(Error::unavailable("not now")),
        _ => echo(author, request, reply),
    });
    script.max_in_flight = 4;
    let four = |spec: &mut ModelSpec| spec.instances = vec![(1, 0); 4];
    let model = Way::Parallel.try_load(&host, &script, four).unwrap();
    std::thread::scope(|scope| {
        for instance in 0..4 {
            let model = &model;
            scope.spawn(move || {
                for round in 0..50 {
                    let requests = (0..3).map(|n| request(&[n as f32]).id(["works", "fails", ""][n]));
                    let answers = model.execute_on(instance, requests).wait();
                    let good: Vec<_> = answers.iter().map(|answer| answer.result().is_ok()).collect();
                    assert_eq!(good, [true, false, true], "round {round}");
                }
            });
        }
    });
    model.unload();
    script.assert_freed();
    host.check();
}
