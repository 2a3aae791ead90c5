//! An author may use the most natural names there are.

#![allow(clippy::unwrap_used)] // a test fails the test

use triton_backend_api::{InstanceContext, ModelContext, Reply, Request, Result, export_backend};
use triton_fake_host::{FakeHost, exported_entry_points};

struct Model;
struct Runner;

impl triton_backend_api::Model for Model {
    fn load(_: &ModelContext) -> Result<Self> {
        Ok(Self)
    }
}

impl triton_backend_api::Instance for Runner {
    type Model = Model;

    fn create(_: &Model, _: &InstanceContext) -> Result<Self> {
        Ok(Self)
    }

    fn infer(&mut self, _: &Model, _: &Request, _: &mut Reply) -> Result<()> {
        Ok(())
    }
}

export_backend!(Model, Runner);

#[test]
fn the_entry_points_do_not_meet_the_authors_names() {
    let host = FakeHost::new();
    assert_eq!(host.initialize(&exported_entry_points!()), Ok(()));
    host.check();
}
