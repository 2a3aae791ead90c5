//! Gate and pool on real threads; `tests/schedules.rs` has them in every order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use super::gate::Gate;
use super::pool::Pool;

#[test]
fn never_more_than_the_limit_and_empty_at_the_end() {
    let (gate, inside, most) = (Gate::new(2), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let slot = gate.enter();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(slot);
                }
            });
        }
    });
    gate.wait_until_empty();
    assert!((1..=2).contains(&most.into_inner()));
}

#[test]
fn everything_queued_is_run_and_a_panic_costs_no_thread() {
    let done = Arc::new(AtomicUsize::new(0));
    let pool = Pool::new("a name longer than fifteen bytes", 1).unwrap();
    for n in 0..10 {
        let done = done.clone();
        pool.spawn(move || {
            done.fetch_add(1, Ordering::SeqCst);
            assert!(n != 3, "this job fails on purpose");
        })
        .unwrap();
    }
    drop(pool);
    assert_eq!(done.load(Ordering::SeqCst), 10);
}

#[test]
fn a_pool_dropped_by_its_own_thread_does_not_wait_for_itself() {
    let pool = Arc::new(Mutex::new(Some(Pool::new("own", 2).unwrap())));
    let (done, wait) = channel();
    let inner = pool.clone();
    let guard = pool.lock().unwrap();
    let job = move || {
        drop(inner.lock().unwrap().take());
        done.send(()).unwrap();
    };
    guard.as_ref().unwrap().spawn(job).unwrap();
    drop(guard);
    wait.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
}
