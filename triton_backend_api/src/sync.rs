//! The locks and threads of what waits: one name for each, so that `tests/schedules.rs` can put its own in their place and choose
//! every order of events.

pub(crate) use std::sync::mpsc::{Receiver, Sender, channel};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::{Builder, JoinHandle, current};
