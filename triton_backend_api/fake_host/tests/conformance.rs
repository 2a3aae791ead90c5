//! The conformance kit finds what a backend in C breaks, and finds nothing where nothing is broken.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CONFIG: &str = r#"{"name": "m", "max_batch_size": 4,
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": ["-1", "3"]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": ["-1", "3"]}]}"#;

fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.json"), CONFIG).unwrap();
    folder
}

/// A shared object from a C source of this repository, below its root.
fn compile(folder: &Path, compiler: &str, source: &str, options: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let library = folder.join("libtriton_m.so");
    let done = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"])
        .args(options)
        .arg("-I")
        .arg(root.join("triton_backend_api/include"))
        .arg(root.join(source))
        .arg("-o")
        .arg(&library)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    library
}

fn conformance(library: &Path, options: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conformance"));
    command.arg(library).arg("--config").arg(library.with_file_name("config.json")).args(options);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    (status.code().unwrap(), text)
}

#[test]
fn a_backend_in_plain_c_that_keeps_the_rules_passes() {
    let library = compile(&folder("plain_c"), "cc", "benches/identity_c/identity.c", &[]);
    let (code, text) = conformance(&library, &[]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("ok      three requests in one execution"), "{text}");
    assert!(!text.contains("note:"), "{text}");
    // Each of the eleven different calls of an execution at least once.
    let faults =
        text.lines().find_map(|line| line.strip_prefix("ok      ")?.split_once(" times one call failed"));
    assert!(faults.unwrap().0.parse::<usize>().unwrap() >= 11, "{text}");
}

#[test]
fn so_does_one_in_cpp() {
    let library = compile(&folder("cpp"), "c++", "benches/identity_c/identity.c", &["-x", "c++"]);
    let (code, text) = conformance(&library, &["--shape", "IN:2,5,3"]);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn a_backend_in_cpp_s_manner_reads_buffers_by_their_attributes_and_does_without_what_is_not_there() {
    let source = "triton_backend_api/fake_host/tests/backends/attributes.c";
    let (code, text) = conformance(&compile(&folder("attributes"), "cc", source, &[]), &[]);
    assert_eq!(code, 0, "{text}");
    // It finds all as it should be, or it would answer with an error. Statistics it does not report.
    assert!(
        text.contains("statistics of a request were reported 0 times") && !text.contains("was answered with"),
        "{text}"
    );
}

/// Exit code and text for the backend that breaks this rule.
fn broken(rule: &str) -> (i32, String) {
    let source = "triton_backend_api/fake_host/tests/backends/broken.c";
    let library = compile(&folder(rule), "cc", source, &[&format!("-DBREAK={rule}")]);
    conformance(&library, &["--no-faults", "--patience", "1"])
}

#[track_caller]
fn assert_found(rule: &str, wanted: &[&str]) {
    let (code, text) = broken(rule);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("BROKEN  one request"), "{text}");
    assert!(text.contains("ok      load, unload, load again"), "what is not broken passes: {text}");
    for part in wanted {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

#[test]
fn a_leaked_request_is_found() {
    let left = "(id \"a\") was left behind";
    assert_found("LEAKS_THE_REQUEST", &["1 of its requests were not released within 1 s", left]);
}

#[test]
fn an_answer_sent_twice_is_found() {
    assert_found("SENDS_TWICE", &["was answered after its final response"]);
}

#[test]
fn a_forgotten_response_is_found() {
    assert_found("FORGETS_THE_RESPONSE", &["was released before it was answered", "got no final response"]);
}

#[test]
fn an_error_after_sending_is_found() {
    assert_found("FAILS_AFTER_SENDING", &["Execute failed, though it had answered request"]);
}

#[test]
fn a_leaked_error_is_found() {
    assert_found("LEAKS_AN_ERROR", &["TRITONBACKEND_RequestCorrelationIdString"]);
}

#[test]
fn a_write_past_the_end_is_found() {
    assert_found("WRITES_TOO_FAR", &["wrote past the memory of output 'OUT'"]);
}

#[test]
fn a_crash_is_found_and_the_other_checks_go_on() {
    assert_found("CRASHES", &["ended the process with signal 6"]);
}

#[test]
fn what_cannot_be_run_says_why() {
    let folder = folder("unusable");
    let library = compile(&folder, "cc", "benches/identity_c/identity.c", &[]);
    for (options, part) in [
        (&["--shape", "OTHER:1"][..], "declares no input 'OTHER'"),
        (&["--shape", "IN"], "INPUT:D,D.. is accepted"),
        (&["--api", "1"], "--api is '1'; MAJOR.MINOR is accepted"),
        (&["--only", "everything"], "no check is called 'everything'"),
        (&["--config", "nowhere.json"], "nowhere.json: No such file"),
        (&["--speed"], "unknown option --speed"),
    ] {
        let (code, text) = conformance(&library, options);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    let (code, text) = conformance(&folder.join("config.json"), &[]);
    assert!(code == 2 && text.contains("invalid ELF header"), "{text}");
}

#[test]
fn one_check_alone_runs_in_the_process_itself() {
    let library = compile(&folder("alone"), "cc", "benches/identity_c/identity.c", &[]);
    let (code, text) = conformance(&library, &["--only", "TRITONBACKEND_ResponseNew fails (call 2)"]);
    assert_eq!((code, text.lines().count()), (0, 2), "{text}");
}
