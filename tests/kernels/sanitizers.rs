//! The other tests under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer, each in a process of its own,
//! which has the sanitizer's runtime preloaded; and the mistakes that only they can see.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use host_kernels::{Order, Sanitizer};

use crate::cases;
use crate::host::Host;
use crate::mistakes;
use crate::on_host::{OnHost, check};

/// Set in the processes that these tests start.
const INSIDE: &str = "SPLEENSEG_SANITIZED";

fn compiler_file(name: &str) -> String {
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let found = Command::new(compiler).arg(format!("-print-file-name={name}")).output().unwrap();
    String::from_utf8(found.stdout).unwrap().trim().to_owned()
}

fn environment(sanitizer: Sanitizer) -> Vec<(&'static str, String)> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{sanitizer:?}"));
    fs::create_dir_all(&folder).unwrap();
    sanitizer.build(&folder, compiler_file).unwrap().into()
}

/// Runs tests of this program by their names in another process.
fn run(environment: &[(&'static str, String)], tests: &[&str]) -> Output {
    // Without randomised addresses, where ThreadSanitizer's own memory map would not fit.
    let mut command = Command::new("setarch");
    command.args(["-R"]).arg(env::current_exe().unwrap()).args([
        "--exact",
        "--test-threads=1",
        "--include-ignored",
    ]);
    command.args(tests).env(INSIDE, "1").envs(environment.iter().cloned()).env("PROPTEST_CASES", "12");
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn passes(environment: &[(&'static str, String)], tests: &[&str]) {
    let output = run(environment, tests);
    let text = text(&output);
    assert!(output.status.success() && text.contains(&format!("{} passed", tests.len())), "{text}");
}

fn is_caught(environment: &[(&'static str, String)], test: &str, report: &str) {
    let output = run(environment, &[test]);
    let text = text(&output);
    assert!(!output.status.success() && text.contains(report), "{test} was not caught: {text}");
}

#[test]
fn address_and_undefined_behaviour() {
    let environment = environment(Sanitizer::Address);
    passes(
        &environment,
        &[
            "arguments::every_kernel_is_there_with_the_size_of_its_parameter",
            "orders::noise_and_spirals_in_all_orders",
            "properties::argmax",
            "properties::components_of_a_mask",
            "properties::components_of_labels",
            "properties::contours",
            "properties::foreground",
            "properties::large_windows_are_summed_in_the_order_of_the_reference",
            "properties::native",
            "properties::outputs",
            "properties::resize",
        ],
    );
    is_caught(&environment, "sanitizers::one_element_too_many", "heap-buffer-overflow");
}

#[test]
fn races() {
    let environment = environment(Sanitizer::Thread);
    passes(&environment, &["sanitizers::small_volumes_on_several_threads"]);
    is_caught(&environment, "sanitizers::a_missing_barrier", "data race");
}

/// What the tests above run in their other process.
fn inside() -> bool {
    env::var_os(INSIDE).is_some()
}

#[test]
#[ignore = "is run by races()"]
fn small_volumes_on_several_threads() {
    if inside() {
        let host = Host { block: 64, multiprocessors: 1, order: Order { seed: 9, workers: 2 } };
        let host = OnHost { host, skew: 0 };
        cases::small().iter().for_each(|case| check(&host, case));
    }
}

#[test]
#[ignore = "is run by address_and_undefined_behaviour()"]
fn one_element_too_many() {
    if inside() {
        mistakes::run("broken_past_the_end", Order::default()).0.unwrap();
    }
}

#[test]
#[ignore = "is run by races()"]
fn a_missing_barrier() {
    if inside() {
        mistakes::run("broken_missing_barrier", Order::default()).0.unwrap();
    }
}
