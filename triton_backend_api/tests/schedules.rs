//! The gate, the pool and the hand-over of an in-process call, compiled over shuttle's locks and threads, which choose the order of
//! all that happens: thousands of them, and every one where they are few.

#![allow(dead_code)] // these are the crate's own files; not all of them is used here
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests fail the test

/// In place of the crate's module of this name.
mod sync {
    pub use shuttle::sync::mpsc::{Receiver, Sender, channel};
    pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub use shuttle::thread::{Builder, JoinHandle, current};
}
mod error {
    pub use triton_backend_api::{Error, Result};
}
#[path = "../src/glue/gate.rs"]
mod gate;
#[path = "../src/bls/handover.rs"]
mod handover;
#[path = "../src/glue/pool.rs"]
mod pool;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use gate::Gate;
use handover::{Handover, Waited};
use pool::Pool;
use shuttle::sync::Mutex;
use shuttle::thread;
use triton_fake_host as _; // the server's functions, so that this links

const LONG: Duration = Duration::from_secs(3600);

/// Many orders: half of them any, half of them with few changes from one thread to another, which find other mistakes.
fn in_many_orders(scenario: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(scenario, 1000);
    shuttle::check_pct(scenario, 1000, 3);
}

/// A job that counts itself.
fn counting(done: &Arc<AtomicUsize>) -> impl FnOnce() + Send + use<> {
    let done = done.clone();
    move || {
        done.fetch_add(1, SeqCst);
    }
}

/// As `Execute` does it: the gate first, then the pool.
fn run(gate: &Arc<Gate>, pool: &Pool, job: impl FnOnce() + Send + 'static) {
    let slot = gate.enter();
    let job = move || {
        job();
        drop(slot);
    };
    pool.spawn(job).unwrap();
}

#[test]
fn the_gate_lets_no_more_in_than_its_limit_and_is_empty_in_the_end() {
    in_many_orders(|| {
        let gate = Gate::new(2);
        let inside = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let (gate, inside) = (gate.clone(), inside.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        let slot = gate.enter();
                        assert!(inside.fetch_add(1, SeqCst) < 2);
                        thread::yield_now();
                        inside.fetch_sub(1, SeqCst);
                        drop(slot);
                    }
                })
            })
            .collect();
        // Finalize may come at any time; then those who come later are not its business.
        gate.wait_until_empty();
        for client in clients {
            client.join().unwrap();
        }
        gate.wait_until_empty();
        assert_eq!(inside.load(SeqCst), 0);
    });
}

#[test]
fn an_instance_that_ends_waits_for_all_that_is_in_flight() {
    in_many_orders(|| {
        let (gate, pool) = (Gate::new(2), Pool::new("instance", 2).unwrap());
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..4 {
            run(&gate, &pool, counting(&done));
        }
        gate.wait_until_empty();
        assert_eq!(done.load(SeqCst), 4);
        drop(pool);
    });
}

#[test]
fn a_pool_runs_all_that_is_queued_before_it_ends() {
    in_many_orders(|| {
        let pool = Pool::new("instance", 2).unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            pool.spawn(counting(&done)).unwrap();
        }
        drop(pool);
        assert_eq!(done.load(SeqCst), 3);
    });
}

/// Releasing the last request of an unloading model drops the pool on one of its own threads.
#[test]
fn a_pool_may_end_on_its_own_thread_while_others_work() {
    in_many_orders(|| {
        let pool = Arc::new(Mutex::new(Some(Pool::new("instance", 2).unwrap())));
        let done = Arc::new(AtomicUsize::new(0));
        let inner = pool.clone();
        let guard = pool.lock().unwrap();
        let queue = guard.as_ref().unwrap();
        queue.spawn(counting(&done)).unwrap();
        queue
            .spawn(move || {
                let last = inner.lock().unwrap().take();
                drop(last);
            })
            .unwrap();
        drop(guard);
        // Shuttle reports what never ends, and a thread that is left over does not run on here.
        while pool.lock().unwrap().is_some() {
            thread::yield_now();
        }
    });
}

/// An input that knows whether the server may still read it.
struct Input(Arc<AtomicBool>);
impl Drop for Input {
    fn drop(&mut self) {
        assert!(self.0.load(SeqCst), "an input goes while the server has it");
    }
}

/// A request that knows whether it is deleted.
#[derive(Clone)]
struct Request(Arc<AtomicBool>);

type Call = Arc<Handover<Request, Input, u32>>;

/// A call that is under way, and the server's threads, which answer it `answers` times and release it, in any order.
fn call(answers: u32) -> (Call, Request, Vec<thread::JoinHandle<()>>) {
    let deleted = Arc::new(AtomicBool::new(false));
    let request = Request(deleted.clone());
    let shared = Arc::new(Handover::new(request.clone(), vec![Input(deleted.clone())]));
    let (answering, releasing) = (shared.clone(), shared.clone());
    let server = vec![
        thread::spawn(move || {
            for answer in 0..answers {
                answering.deliver(Some(answer), false);
            }
            answering.deliver(None, true);
        }),
        thread::spawn(move || {
            let inputs = releasing.release();
            // As the release callback does it: the request is deleted, and then its inputs.
            assert!(!deleted.swap(true, SeqCst), "deleted twice");
            drop(inputs);
        }),
    ];
    (shared, request, server)
}

fn join(server: Vec<thread::JoinHandle<()>>) {
    for thread in server {
        thread.join().unwrap();
    }
}

fn cancel(shared: &Call) {
    shared.cancel(|request| assert!(!request.0.load(SeqCst), "a deleted request is cancelled"));
}

#[test]
fn whoever_waits_gets_all_responses_in_order() {
    in_many_orders(|| {
        let (shared, request, server) = call(2);
        let Ok(all) = shared.all(LONG, || false) else { panic!("nobody gave up") };
        assert_eq!(all, VecDeque::from([0, 1]));
        cancel(&shared); // as a pending response does when it is dropped
        join(server);
        assert!(request.0.load(SeqCst));
    });
}

#[test]
fn responses_are_taken_one_by_one_and_end() {
    in_many_orders(|| {
        let (shared, _, server) = call(3);
        let next = || shared.next(LONG, || false).unwrap_or_else(|_: Waited| panic!("nobody gave up"));
        for expected in [Some(0), Some(1), Some(2), None, None] {
            assert_eq!(next(), expected);
        }
        join(server);
    });
}

#[test]
fn who_gives_up_cancels_a_request_that_is_still_there() {
    in_many_orders(|| {
        let (shared, _, server) = call(1);
        let mut looked = 0;
        let waited = shared.next(LONG, || {
            looked += 1;
            looked > 1
        });
        drop(waited);
        cancel(&shared);
        drop(shared);
        join(server);
    });
}

#[test]
fn a_call_that_the_server_refuses_leaves_its_inputs_to_the_caller() {
    // Few enough orders for all of them.
    shuttle::check_dfs(
        || {
            let gone = Arc::new(AtomicBool::new(false));
            let shared: Call = Arc::new(Handover::new(Request(gone.clone()), vec![Input(gone.clone())]));
            let other = shared.clone();
            let canceller = thread::spawn(move || cancel(&other));
            let inputs = shared.release();
            gone.store(true, SeqCst);
            assert_eq!(inputs.len(), 1);
            drop(inputs);
            canceller.join().unwrap();
        },
        None,
    );
}
