//! An instance: a network, and how the requests of an execution go through it.

use std::sync::Arc;

use triton_backend_api::{
    Batch, Entry, Error, Execution, Instance, InstanceContext, Reply, Request, Result, log,
};

use crate::batching::{Bound, Sample, groups};
use crate::device;
use crate::libtorch;
use crate::model::TorchModel;
use crate::results::Computed;
use crate::torch::{Network, set_thread_options};
use crate::torch_error::torch_error;

pub struct TorchInstance {
    network: Arc<Network>,
    /// Whether the network gets a copy of its input, and not the client's memory.
    copies_input: bool,
}

impl Instance for TorchInstance {
    type Model = TorchModel;

    fn create(model: &TorchModel, cx: &InstanceContext) -> Result<Self> {
        let device = device::of_instance(cx.kind(), cx.device_id(), libtorch::gpus)
            .map_err(|error| error.context(format!("instance {}", cx.name())))?;
        Ok(Self { network: model.network(device)?, copies_input: model.copies_input })
    }

    fn infer(&mut self, model: &TorchModel, request: &Request, reply: &mut Reply) -> Result<()> {
        let _no_grad = tch::no_grad_guard();
        set_thread_options(&model.settings)?;
        let answered = self.answer_alone(model, request, reply);
        answered.inspect_err(|_| self.drain(model))
    }

    fn execute(&mut self, model: &TorchModel, batch: &mut Batch) -> Result<()> {
        let _no_grad = tch::no_grad_guard();
        set_thread_options(&model.settings)?;
        let (entries, mut times) = batch.as_one_execution();
        let failures = self.answer(model, entries, &mut times);
        if !failures.is_empty() {
            self.drain(model);
        }
        for (entry, error) in failures {
            let id = entries[entry].request.id().unwrap_or_default();
            log!(Warn, "model {}: request '{id}' failed: {error}", model.name);
            entries[entry].fail(error);
        }
        Ok(())
    }
}

impl TorchInstance {
    /// Waits for what a failed request may have left under way on the GPU: it reads memory that goes back to the server.
    fn drain(&self, model: &TorchModel) {
        if let Err(error) = device::settle(self.network.device()) {
            log!(Warn, "model {}: the GPU failed: {}", model.name, torch_error(error));
        }
    }

    fn answer_alone(&mut self, model: &TorchModel, request: &Request, reply: &mut Reply) -> Result<()> {
        let sample = Sample::gather(model, request, self.network.device())?;
        let bound = self.bind(model, &[&sample])?;
        reply.mark_compute_start();
        let computed = self.call(model, bound)?;
        reply.mark_compute_end();
        computed.write(model, &self.network, &sample, 0, reply)
    }

    /// Answers all entries but those it returns, with their errors.
    fn answer(
        &mut self,
        model: &TorchModel,
        entries: &mut [Entry],
        times: &mut Execution<'_>,
    ) -> Vec<(usize, Error)> {
        let mut failures = Vec::new();
        let (requests, mut replies): (Vec<&Request>, Vec<&mut Reply>) =
            entries.iter_mut().map(|Entry { request, reply, .. }| (&*request, reply)).unzip();
        let mut samples = Vec::with_capacity(requests.len());
        for (entry, request) in requests.into_iter().enumerate() {
            match Sample::gather(model, request, self.network.device()) {
                Ok(sample) => samples.push((entry, sample)),
                Err(error) => failures.push((entry, error)),
            }
        }
        let members = |group: &[usize]| group.iter().map(|&index| &samples[index].1).collect::<Vec<_>>();
        let groups = groups(&samples, model.batched);
        let bound: Vec<_> = groups.iter().map(|group| self.bind(model, &members(group))).collect();

        times.mark_compute_start();
        let mut results = Vec::with_capacity(groups.len());
        for (group, bound) in groups.into_iter().zip(bound) {
            match bound.and_then(|bound| self.call(model, bound)) {
                // One request may have spoilt it for all of them: each gets its own call.
                Err(_) if group.len() > 1 => results.extend(group.into_iter().map(|index| {
                    let alone =
                        self.bind(model, &members(&[index])).and_then(|bound| self.call(model, bound));
                    (vec![index], alone)
                })),
                computed => results.push((group, computed)),
            }
        }

        times.mark_compute_end();
        for (group, computed) in &results {
            let mut start = 0;
            for &index in group {
                let (entry, sample) = &samples[index];
                let written = match computed {
                    Ok(computed) => computed.write(model, &self.network, sample, start, replies[*entry]),
                    Err(error) => Err(error.clone()),
                };
                start += sample.rows();
                failures.extend(written.err().map(|error| (*entry, error)));
            }
        }
        failures
    }

    fn bind<'a>(&self, model: &TorchModel, samples: &[&'a Sample<'a>]) -> Result<Bound<'a>> {
        Bound::new(model, &self.network, samples, self.copies_input)
    }

    fn call<'a>(&mut self, model: &TorchModel, bound: Bound<'a>) -> Result<Computed<'a>> {
        let (computed, written) = bound.call(model, &self.network)?;
        if written && !self.copies_input {
            log!(
                Warn,
                "model {}: forward() wrote to its input, which its code does not show; from now on it gets a copy of \
                 each request's",
                model.name
            );
            self.copies_input = true;
        }
        Ok(computed)
    }
}
