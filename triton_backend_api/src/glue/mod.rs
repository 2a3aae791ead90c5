//! What stands between the server and the author: entry points, state, threads, and the boundary for panics.
//!
//! Public only for [`export_backend!`](crate::export_backend!).

pub(crate) mod boundary;
mod entry;
pub(crate) mod gate;
mod pin;
mod pool;
mod runner;
#[cfg(test)]
mod tests;

pub use crate::raw::late::{Lookup, look_in};
pub use entry::*;
pub use runner::{Concurrent, Profile, Runner, Sequential};
