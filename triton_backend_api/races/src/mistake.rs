//! A race between two requests of one instance. ThreadSanitizer must find it, in a process of its own.

use std::env;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::yield_now;

use common::*;

#[path = "../../tests/common/mod.rs"]
mod common;

#[test]
fn a_race_between_requests_in_flight_is_found() {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "--ignored", "mistake::two_requests_write_to_one_place"])
        .output()
        .unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed") && text.contains("ThreadSanitizer: data race"), "{text}");
    assert!(!output.status.success(), "what was found must fail the run: {text}");
}

#[test]
#[ignore = "is run by a_race_between_requests_in_flight_is_found()"]
fn two_requests_write_to_one_place() {
    static ARRIVED: AtomicUsize = AtomicUsize::new(0);
    static WRITERS: AtomicUsize = AtomicUsize::new(0);
    static mut WRITTEN: usize = 0;
    let host = FakeHost::new();
    let script = Script::new(|_, _, _| {
        // Both are here before either writes, and one writes after the other: two at the very same moment the sanitizer may miss.
        // All relaxed, so that nothing of one comes before anything of the other by right.
        let place = ARRIVED.fetch_add(1, Relaxed);
        while ARRIVED.load(Relaxed) < 2 || WRITERS.load(Relaxed) < place {
            yield_now();
        }
        // SAFETY: none; this is the mistake.
        unsafe { WRITTEN += 1 };
        WRITERS.fetch_add(1, Relaxed);
        Ok(())
    });
    let model = Way::Parallel.load(&host, &script);
    assert_eq!(model.execute([request(&[1.0]), request(&[2.0])]).wait().len(), 2);
    model.unload();
    host.check();
}
