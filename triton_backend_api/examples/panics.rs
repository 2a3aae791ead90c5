//! An echo that panics on command, for the tests: what the server and its clients see of an author's mistake.
//!
//! OUT is IN. The place to panic at is named by the model's parameter `panic` (load, create, instance's end, model's end)
//! or by the request's id (start, output, answered, thread).

#![allow(clippy::panic)] // what it is for

use triton_backend_api::*;

fn reach(place: &str, panics_at: &str) {
    if place == panics_at {
        panic!("told to panic at {place}");
    }
}

struct Fragile(String);

impl Model for Fragile {
    fn load(cx: &ModelContext) -> Result<Self> {
        let panics_at = cx.config().parameters().remove("panic").unwrap_or_default();
        reach("load", &panics_at);
        Ok(Self(panics_at))
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        reach("model's end", &self.0);
    }
}

struct Echo(String);

impl Drop for Echo {
    fn drop(&mut self) {
        reach("instance's end", &self.0);
    }
}

impl ConcurrentInstance for Echo {
    type Model = Fragile;

    fn create(model: &Fragile, _: &InstanceContext) -> Result<Self> {
        reach("create", &model.0);
        Ok(Self(model.0.clone()))
    }

    fn start(&self, _: &Fragile, request: OwnedRequest, mut reply: OwnedReply) {
        let panics_at = request.id().unwrap_or_default();
        reach("start", &panics_at);
        if panics_at == "thread" {
            std::thread::spawn(move || {
                let _open = (request, reply);
                reach("thread", &panics_at);
            });
            return;
        }
        let echoed = echo(&request, &mut reply);
        reach("output", &panics_at);
        reply.send(echoed);
        reach("answered", &panics_at);
    }
}

fn echo(request: &Request, reply: &mut Reply) -> Result<()> {
    let input = request.input("IN")?;
    let mut output = reply.output("OUT", input.data_type(), input.shape())?;
    input.copy_to(output.bytes_mut()?)
}

export_backend!(Fragile, concurrent Echo);
