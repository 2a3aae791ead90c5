//! What is said, and what was wrong.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Differences that are told; the others are counted.
const TOLD: usize = 10;

/// What takes longer is told, since it may never end.
const LONG: Duration = Duration::from_secs(15);

/// Of all threads.
pub struct Report {
    wrong: AtomicUsize,
    under_way: Arc<Mutex<Vec<Work>>>,
}

/// Something that a thread has begun.
struct Work {
    what: String,
    since: Instant,
    told: bool,
}

fn lock(works: &Mutex<Vec<Work>>) -> MutexGuard<'_, Vec<Work>> {
    works.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says a line. Where nobody listens there is nothing to be done.
fn say(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

impl Report {
    pub fn new() -> Self {
        let under_way = Arc::<Mutex<Vec<Work>>>::default();
        let watched = under_way.clone();
        thread::spawn(move || {
            loop {
                thread::sleep(Duration::from_secs(1));
                for work in lock(&watched).iter_mut().filter(|work| !work.told && work.since.elapsed() > LONG)
                {
                    say(&format!("{} s and not done: {}", LONG.as_secs(), work.what));
                    work.told = true;
                }
            }
        });
        Self { wrong: AtomicUsize::new(0), under_way }
    }

    pub fn say(&self, text: &str) {
        say(text);
    }

    /// Something is not as it must be.
    pub fn wrong(&self, text: &str) {
        if self.wrong.fetch_add(1, Ordering::Relaxed) < TOLD {
            say(&format!("WRONG: {text}"));
        }
    }

    /// Does some work, which is told where it does not end.
    pub fn watch<R>(&self, what: String, work: impl FnOnce() -> R) -> R {
        let since = Instant::now();
        lock(&self.under_way).push(Work { what: what.clone(), since, told: false });
        let result = work();
        lock(&self.under_way).retain(|work| work.since != since || work.what != what);
        result
    }

    /// Says the last line.
    pub fn end(&self) -> ExitCode {
        match self.wrong.load(Ordering::Relaxed) {
            0 => ExitCode::SUCCESS,
            wrong => {
                say(&format!("{wrong} were wrong"));
                ExitCode::FAILURE
            }
        }
    }
}
