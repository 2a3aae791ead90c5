//! The in-process call to the network, and the check of what it answers.

use std::time::Instant;

use triton_backend_api::bls::{InferenceResponse, PendingResponse};
use triton_backend_api::{DataType, Error, ErrorCode, MemoryManager, Request, Result, Server};

use crate::bridge::Bridge;
use crate::config::SegmentationModel;
use crate::volume::{LogitType, Shape3};

/// Calls the network: another model of the same server, whichever version is there when the request comes.
pub struct Segmenter {
    server: Server,
    memory: MemoryManager,
    network: SegmentationModel,
}

/// The network's answer for one volume, checked.
pub struct Scores {
    response: InferenceResponse,
    logit_type: LogitType,
    classes: usize,
    size: Shape3,
    output: String,
}

impl Segmenter {
    /// Calls `network` on `server`; answers that are to stay on another GPU than the instance's lie in `memory`.
    pub fn new(server: Server, memory: MemoryManager, network: SegmentationModel) -> Self {
        Self { server, memory, network }
    }

    /// Keeps the memory of `more` further answers for the next ones.
    pub fn keep_more_outputs(&self, more: usize) {
        self.server.keep_more_outputs(more);
    }

    /// Sends every tensor, each of this size, as a request of its own, all at once, and waits for the answers in
    /// their order.
    pub fn segment<D: Bridge>(
        &self,
        device: &D,
        request: &Request,
        tensors: Vec<D::Tensor>,
        size: Shape3,
    ) -> Result<Vec<Scores>> {
        let deadline = Instant::now() + self.network.timeout;
        let sent: Vec<_> = tensors
            .into_iter()
            .map(|tensor| self.send(device, request, tensor, size))
            .collect::<Result<_>>()?;
        sent.into_iter().map(|pending| self.receive(request, pending, size, deadline)).collect()
    }

    fn send<D: Bridge>(
        &self,
        device: &D,
        request: &Request,
        tensor: D::Tensor,
        size: Shape3,
    ) -> Result<PendingResponse> {
        let network = &self.network;
        // Load order is free: a network that is not there yet is unavailable, whatever the server calls it.
        let mut call = self.server.inference_request(&network.model, network.version).map_err(|e| {
            let code = if e.code() == ErrorCode::NotFound { ErrorCode::Unavailable } else { e.code() };
            Error::new(code, format!("model '{}' cannot be called: {e}", network.model))
        })?;
        let [h, w, d] = size.dims().map(|dim| dim as i64);
        let fill = |call: &mut triton_backend_api::bls::InferenceRequest| {
            call.inherit(request)?;
            call.input(&network.input, DataType::Fp32, &[1, 1, h, w, d], device.memory(tensor)?)?;
            if let Some(memory) = device.answer_memory() {
                call.place_outputs_in(memory);
                call.place_outputs_where_made(self.memory);
            }
            call.request_output(&network.output)
        };
        fill(&mut call)
            .and_then(|()| call.send())
            .map_err(|e| e.context(format!("model '{}' refused the call", network.model)))
    }

    fn receive(
        &self,
        request: &Request,
        pending: PendingResponse,
        size: Shape3,
        deadline: Instant,
    ) -> Result<Scores> {
        let name = &self.network.model;
        let left = deadline.saturating_duration_since(Instant::now());
        let response = pending.wait(left, || request.is_cancelled()).map_err(|e| match e.code() {
            ErrorCode::Unavailable => Error::unavailable(format!(
                "model '{name}' did not answer within {} s (parameter segmentation_timeout_s)",
                self.network.timeout.as_secs_f64()
            )),
            _ => e,
        })?;
        response.error().map_err(|e| e.context(format!("model '{name}' failed")))?;
        self.check(response, size)
            .map_err(|e| e.context(format!("model '{name}' answered what cannot be used")))
    }

    fn check(&self, response: InferenceResponse, size: Shape3) -> Result<Scores> {
        let wanted = &self.network.output;
        let tensor = response.output(wanted).map_err(|e| Error::internal(e.message().to_owned()))?;
        let logit_type = match tensor.data_type {
            DataType::Fp32 => LogitType::Fp32,
            DataType::Fp16 => LogitType::Fp16,
            other => {
                return Err(Error::internal(format!(
                    "output '{wanted}' has data type {other}; accepted are FP32 and FP16"
                )));
            }
        };
        let [h, w, d] = size.dims().map(|dim| dim as i64);
        let classes = match *tensor.shape {
            [1, classes @ 2..=256, a, b, c] if [a, b, c] == [h, w, d] => classes as usize,
            _ => {
                return Err(Error::internal(format!(
                    "output '{wanted}' has shape {:?}; accepted is [1, C, {h}, {w}, {d}] with 2 to 256 classes C",
                    tensor.shape
                )));
            }
        };
        let output = wanted.clone();
        Ok(Scores { response, logit_type, classes, size, output })
    }
}

impl Scores {
    /// How many classes there are.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The model that answered, and its version: `segmentation_3d/1`.
    pub fn network(&self) -> Result<String> {
        self.response.model().map(|(name, version)| format!("{name}/{version}"))
    }

    /// The scores, where they lie.
    pub fn logits<D: Bridge>(&self, device: &D) -> Result<D::Logits<'_>> {
        let tensor = self.response.output(&self.output)?;
        device.logits(&tensor, self.logit_type, self.classes, self.size)
    }
}
