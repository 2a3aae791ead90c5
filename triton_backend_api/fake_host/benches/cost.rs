//! What one backend adds to a request over another one that does the same: `cost YARDSTICK.so SUBJECT.so`.
//!
//! Both are loaded into one process under the same host and take turns, so that whatever the machine does falls on both.
//! Prints JSON: for each size of the one input IN the median nanoseconds of a request, the host's own part included, and
//! their difference, in which it falls out. scripts/bench_api.sh runs it.

#![allow(clippy::print_stdout)] // it is what a benchmark is for

use std::path::Path;
use std::time::Instant;

use serde_json::json;
use triton_fake_host::abi::TRITONSERVER_TYPE_UINT8;
use triton_fake_host::{EntryPoints, FakeHost, HostError, LoadedModel, ModelSpec, TestInput, TestRequest};

const ROUNDS: usize = 40;
const REQUESTS: usize = 200;
const SIZES: [usize; 3] = [0, 1 << 10, 1 << 16];

fn main() -> Result<(), HostError> {
    let libraries: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let [yardstick, subject] = libraries.as_slice() else {
        return Err(HostError::new(0, "usage: cost YARDSTICK.so SUBJECT.so"));
    };
    let open = |path: &String| EntryPoints::open(Path::new(path));
    let entry_points = [open(yardstick)?, open(subject)?];
    let mut found = Vec::new();
    for size in SIZES {
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            // A fresh host a round: its ledger grows with what happens.
            let host = FakeHost::new();
            let models = entry_points.map(|entry_points| load(&host, entry_points));
            let models = models.into_iter().collect::<Result<Vec<_>, _>>()?;
            for turn in [round % 2, (round + 1) % 2] {
                times[turn].extend((0..REQUESTS).map(|_| time(&models[turn], size)));
            }
            drop(models);
            host.check();
        }
        let [yardstick, subject] = times.map(median);
        found.push(json!({
            "bytes": size, "requests": REQUESTS * ROUNDS,
            "yardstick_ns": yardstick, "subject_ns": subject, "added_ns": subject - yardstick,
        }));
    }
    println!("{}", json!(found));
    Ok(())
}

fn load(host: &FakeHost, entry_points: EntryPoints) -> Result<LoadedModel<'_>, HostError> {
    host.initialize(&entry_points)?;
    let tensor = |name: &str| json!([{"name": name, "data_type": "TYPE_UINT8", "dims": [-1]}]);
    host.load(
        entry_points,
        ModelSpec::new("identity", json!({"input": tensor("IN"), "output": tensor("OUT")})),
    )
}

/// Nanoseconds of one request, its answer checked outside of them.
fn time(model: &LoadedModel<'_>, size: usize) -> i64 {
    let request =
        TestRequest::new([TestInput::new("IN", TRITONSERVER_TYPE_UINT8, &[size as i64], vec![7; size])]);
    let began = Instant::now();
    let execution = model.execute([request]);
    let ns = began.elapsed().as_nanos() as i64;
    let answers = execution.wait();
    assert_eq!(answers[0].bytes("OUT").map(|bytes| bytes.len()), Some(size), "{answers:?}");
    ns
}

fn median(mut times: Vec<i64>) -> i64 {
    times.sort_unstable();
    times[times.len() / 2]
}
