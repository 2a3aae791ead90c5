//! What threads share in `triton_backend_api`, as its tests use it, for ThreadSanitizer; and a race, which must be found.
#![cfg(test)]
#![allow(clippy::duplicate_mod)] // each file of tests has `common` as its own

#[path = "../../tests/backend.rs"]
mod backend;
#[path = "../../tests/faults_server.rs"]
mod faults_server;
#[path = "../../tests/in_process.rs"]
mod in_process;
#[path = "../../tests/in_process_memory.rs"]
mod in_process_memory;
#[path = "../../tests/in_process_streams.rs"]
mod in_process_streams;
#[path = "../../tests/in_process_waiting.rs"]
mod in_process_waiting;
#[path = "../../tests/loading.rs"]
mod loading;
#[path = "../../tests/memory.rs"]
mod memory;
#[path = "../../tests/metrics.rs"]
mod metrics;
mod mistake;
#[path = "../../tests/requests.rs"]
mod requests;
#[path = "../../tests/streams.rs"]
mod streams;
#[path = "../../tests/taking_over.rs"]
mod taking_over;
