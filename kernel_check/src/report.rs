//! What is said, and what was wrong.

use std::any::Any;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Differences that are told; the others are counted.
const TOLD: usize = 10;

/// Of all threads.
pub struct Report {
    wrong: AtomicUsize,
}

impl Report {
    pub fn new() -> Self {
        // Panics are told once, here.
        set_hook(Box::new(|_| ()));
        Self { wrong: AtomicUsize::new(0) }
    }

    /// Says a line. Where nobody listens there is nothing to be done.
    pub fn say(&self, text: &str) {
        let _ = writeln!(io::stdout().lock(), "{text}");
    }

    /// Something is not as it must be.
    pub fn wrong(&self, text: &str) {
        if self.wrong.fetch_add(1, Ordering::Relaxed) < TOLD {
            self.say(&format!("WRONG: {text}"));
        }
    }

    /// Does what panics where something is wrong.
    pub fn watch(&self, what: impl FnOnce() -> String, work: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            self.wrong(&format!("{}: {}", what(), text(&*panic)));
        }
    }

    /// Says the last line.
    pub fn end(&self) -> ExitCode {
        match self.wrong.load(Ordering::Relaxed) {
            0 => ExitCode::SUCCESS,
            wrong => {
                self.say(&format!("{wrong} were wrong"));
                ExitCode::FAILURE
            }
        }
    }
}

/// What a panic says.
fn text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "a panic",
    }
}
