//! What `export_backend!` exports is what the server calls.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

mod common;

use common::*;
use triton_backend_api::export_backend;
use triton_fake_host::exported_entry_points;

export_backend!(Author, concurrent Parallel);

#[test]
fn a_model_lives_its_life_through_the_exported_functions() {
    let host = FakeHost::new();
    let script = Script::new(echo);
    let exported = exported_entry_points!();
    assert_eq!(host.initialize(&exported), Ok(()));
    let (cpu, gpu) = (abi::TRITONSERVER_INSTANCEGROUPKIND_CPU, abi::TRITONSERVER_INSTANCEGROUPKIND_GPU);
    assert_eq!(host.backend_attributes(&exported), Ok(vec![gpu, cpu]));
    let model = host.load(exported, spec(&script)).unwrap();
    assert_eq!(model.ready(), Ok(()), "rule 10: exported, and true of an instance that is initialised");
    let answers = model.execute([request(&[1.0]), request(&[2.0])]).wait();
    assert_eq!(answers[1].bytes("OUTPUT0"), Some(bytes(&[2.0])));
    model.unload();
    script.assert_freed();
    host.check();
}
