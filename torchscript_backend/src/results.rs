//! What `forward()` returned, held to the configuration and copied to the replies.

use tch::{Device, Tensor};
use triton_backend_api::{Error, MemoryKind, Output, Reply, Result};

use crate::batching::Sample;
use crate::cuda::Copier;
use crate::device;
use crate::kinds::triton_name;
use crate::libtorch::{Content, Lent, copy_out, copy_to_gpu};
use crate::model::{OutputSpec, TorchModel};
use crate::torch::Network;
use crate::torch_error::torch_error;

/// What a call returned. It may look into the arguments' memory, and so keeps them.
pub struct Computed<'a> {
    returned: Content,
    rows: i64,
    _arguments: Vec<Option<Lent<'a>>>,
}

impl<'a> Computed<'a> {
    pub fn new(returned: Content, rows: i64, arguments: Vec<Option<Lent<'a>>>) -> Self {
        Self { returned, rows, _arguments: arguments }
    }

    /// The extent of its batch axis.
    #[cfg(test)]
    pub fn rows(&self) -> i64 {
        self.rows
    }

    /// Writes the outputs that `sample` asked for; its rows begin at `start`.
    pub fn write(
        &self,
        model: &TorchModel,
        network: &Network,
        sample: &Sample<'_>,
        start: i64,
        reply: &mut Reply,
    ) -> Result<()> {
        for (_, spec) in model.outputs.iter().enumerate().filter(|(index, _)| sample.wants(*index)) {
            let tensor = self.tensor(spec)?;
            self.check(spec, tensor, model.batched, network)?;
            let rows = match model.batched && sample.rows() != self.rows {
                true => &tensor.f_narrow(0, start, sample.rows()).map_err(torch_error)?,
                false => tensor,
            };
            let memory = device::output_memory(rows.device());
            let output = reply.output_in(memory, &spec.name, spec.data_type, &rows.size())?;
            write(rows, spec, output, &model.copier)
                .map_err(|error| error.context(format!("output {}", spec.name)))?;
        }
        Ok(())
    }

    /// The tensor that stands for an output.
    pub fn tensor(&self, spec: &OutputSpec) -> Result<&Tensor> {
        let (name, index) = (&spec.name, spec.at.index);
        let missing = |what: String| Error::invalid_arg(format!("output {name} is {what}"));
        let found = match &self.returned {
            Content::Dictionary(entries) => {
                let by_key = entries.iter().find(|(key, _)| *key == spec.at.key);
                let entry = by_key.or_else(|| entries.get(index?)).ok_or_else(|| {
                    let keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
                    missing(format!("not in the dictionary that forward() returned: {}", keys.join(", ")))
                })?;
                &entry.1
            }
            Content::Sequence(values) => {
                let index = index.unwrap_or(0);
                let count = values.len();
                values
                    .get(index)
                    .ok_or_else(|| missing(format!("result {index}, but forward() returned {count}")))?
            }
            single if index.unwrap_or(0) == 0 => single,
            _ => return Err(missing(format!("result {}, but forward() returned one", index.unwrap_or(0)))),
        };
        let other = match found {
            Content::Tensor(tensor) => return Ok(tensor),
            Content::Sequence(_) => "a tuple or list",
            Content::Dictionary(_) => "a dictionary",
            Content::Other(name) => name,
        };
        Err(Error::unsupported(format!("output {name}: forward() returned {other} for it; accepted: Tensor")))
    }

    fn check(&self, spec: &OutputSpec, tensor: &Tensor, batched: bool, network: &Network) -> Result<()> {
        let kind = tensor.f_kind().map_err(torch_error)?;
        if !network.converts(kind, spec.kind) {
            return Err(Error::invalid_arg(format!(
                "output {} is {} in the configuration, but forward() returned {}",
                spec.name,
                spec.data_type,
                triton_name(kind)
            )));
        }
        let shape = tensor.size();
        let mut expected = spec.shape.clone();
        if let (true, Some(batch)) = (batched, expected.first_mut()) {
            *batch = self.rows;
        }
        let fits = shape.len() == expected.len()
            && shape.iter().zip(&expected).all(|(got, want)| *want == -1 || got == want);
        match fits {
            true => Ok(()),
            false => Err(Error::invalid_arg(format!(
                "output {} is {expected:?} by the configuration{}, but forward() returned {shape:?}",
                spec.name,
                if batched { " and the batch" } else { "" }
            ))),
        }
    }
}

/// Writes `tensor` to where the server wants it, and waits until it is there.
fn write(tensor: &Tensor, spec: &OutputSpec, mut output: Output<'_>, copier: &Copier) -> Result<()> {
    match (device::of_memory(output.kind())?, output.kind()) {
        (Device::Cpu, _) => copy_out(tensor, spec.kind, output.bytes_mut()?).map_err(torch_error),
        (_, MemoryKind::Gpu(id)) if tensor.device() == Device::Cpu => {
            let mut copied = copier.take(output.byte_size())?;
            copy_out(tensor, spec.kind, copied.as_mut_slice()).map_err(torch_error)?;
            copier.write(copied.as_slice(), &mut output, id)
        }
        (gpu, _) => copy_to_gpu(tensor, spec.kind, &mut output, gpu)
            .and_then(|()| device::settle(gpu))
            .map_err(torch_error),
    }
}
