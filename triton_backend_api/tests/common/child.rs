//! An author that calls another model, and that model.

use std::time::Duration;

use triton_backend_api::bls::{InferenceRequest, InferenceResponse};
use triton_backend_api::*;

use super::*;

/// What only a test that fails waits for.
pub const LONG: Duration = Duration::from_secs(60);

pub const SHORT: Duration = Duration::from_millis(40);

/// A request to the child: INPUT0 as it is, and OUT asked for.
pub fn call(author: &Author, request: &Request) -> Result<InferenceRequest> {
    let mut call = author.server.inference_request("child", -1)?;
    call.inherit(request)?;
    let input = request.input("INPUT0")?;
    call.input("IN", DataType::Fp32, input.shape(), input.elements::<f32>()?.into_owned())?;
    call.request_output("OUT")?;
    Ok(call)
}

/// OUTPUT0 is the child's OUT.
pub fn copy(response: &InferenceResponse, reply: &mut Reply) -> Result<()> {
    response.error().map_err(|e| e.context("model 'child'"))?;
    let out = response.output("OUT")?;
    let bytes = out.buffer.host().ok_or_else(|| Error::internal("OUT is out of reach"))?;
    reply.output("OUTPUT0", out.data_type, out.shape)?.bytes_mut()?.copy_from_slice(bytes);
    Ok(())
}

pub fn calling(timeout: Duration) -> Script {
    Script::new(move |author, request, reply| {
        let response = call(author, request)?.send()?.wait(timeout, || request.is_cancelled())?;
        copy(&response, reply)
    })
}

/// IN doubled.
pub fn doubled(call: &ChildCall) -> Vec<ChildOutput> {
    let input = call.input("IN").unwrap();
    let values: Vec<f32> =
        input.bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap()) * 2.0).collect();
    vec![ChildOutput::fp32("OUT", &input.shape, &values)]
}

/// What becomes of one request to a model that calls the child.
pub fn answer(host: &FakeHost, way: Way, script: &Script) -> Answer {
    let answer = way.load(host, script).execute([request(&[1.5, -2.0])]).wait().remove(0);
    assert_eq!((answer.responses.len(), answer.released), (1, 1));
    script.assert_freed();
    answer
}

/// As `answer`, where the child may still be at it.
pub fn answer_of(host: &FakeHost, way: Way, script: &Script) -> Answer {
    way.load(host, script).execute([request(&[1.5])]).wait().remove(0)
}
