//! Where a device's buffers meet Triton's memory. Each device says here how it reads inputs and replies where they
//! lie, and how it gives its own memory away.

use std::sync::Arc;

use triton_backend_api::bls::ResponseTensor;
use triton_backend_api::{Error, HostMemory, Input, MemoryKind, Output, OutputMemory, Result, StableMemory};

use crate::cpu::{self, Cpu};
use crate::pipeline::Device;
use crate::volume::{LabelType, LogitType, Shape3, VoxelType};

/// A device that Triton's tensors can be passed to.
pub trait Bridge: Device {
    /// All of INPUT0, readable by the device.
    type Source<'a>;
    /// The network's input, as memory for Triton.
    type Memory: StableMemory + 'static;

    /// Where outputs should lie.
    fn output_memory(&self) -> MemoryKind;

    /// Memory of the device for the network's answers, which are wanted where they are made; `None`: in host memory.
    fn answer_memory(&self) -> Option<Arc<dyn OutputMemory>> {
        None
    }

    /// Waits until nothing uses the request's memory any more. Says how long the steps took on a device of their own,
    /// where somebody reads it.
    fn settle(&self) -> Option<String> {
        None
    }

    /// Makes an input readable: in place where it can be.
    fn read<'a>(&self, input: &Input<'a>) -> Result<Self::Source<'a>>;

    /// The volumes of an input, one after the other, each of this size.
    fn volumes<'s>(
        &self,
        source: &'s Self::Source<'_>,
        voxel_type: VoxelType,
        size: Shape3,
    ) -> Result<Vec<Self::Input<'s>>>;

    /// The labels in host memory, where the shadow model's are compared with them.
    fn labels_to_host(&self, labels: Self::Labels) -> Result<HostMemory>;

    /// Gives a tensor away as the network's input; all work on it is done.
    fn memory(&self, tensor: Self::Tensor) -> Result<Self::Memory>;

    /// The network's scores, where they lie.
    fn logits<'r>(
        &self,
        reply: &ResponseTensor<'r>,
        logit_type: LogitType,
        classes: usize,
        size: Shape3,
    ) -> Result<Self::Logits<'r>>;

    /// Writes the volumes' labels to an output, one after the other.
    fn write_output(&self, labels: &[&Self::Labels], output: Output<'_>, label_type: LabelType)
    -> Result<()>;
}

/// All of INPUT0 on the host.
pub enum Source<'a> {
    /// Where Triton has it.
    InPlace(&'a [u8]),
    /// Gathered from several buffers, or from memory of a GPU.
    Gathered(HostMemory),
}

impl Bridge for Cpu {
    type Source<'a> = Source<'a>;
    type Memory = HostMemory;

    fn output_memory(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn read<'a>(&self, input: &Input<'a>) -> Result<Source<'a>> {
        if let Some(bytes) = input.in_place()? {
            return Ok(Source::InPlace(bytes));
        }
        let mut gathered = self.take(input.byte_size(), "a copy of INPUT0")?;
        #[cfg(feature = "cuda")]
        self.copier().gather(input, gathered.as_mut_slice())?;
        #[cfg(not(feature = "cuda"))]
        input.copy_to(gathered.as_mut_slice())?;
        Ok(Source::Gathered(gathered))
    }

    fn volumes<'s>(
        &self,
        source: &'s Source<'_>,
        voxel_type: VoxelType,
        size: Shape3,
    ) -> Result<Vec<cpu::Input<'s>>> {
        let bytes = match source {
            Source::InPlace(bytes) => bytes,
            Source::Gathered(memory) => memory.as_slice(),
        };
        bytes
            .chunks_exact(size.count() * voxel_type.size())
            .map(|bytes| cpu::Input::new(bytes, voxel_type, size))
            .collect()
    }

    fn labels_to_host(&self, labels: cpu::Labels) -> Result<HostMemory> {
        Ok(labels.into_data())
    }

    fn memory(&self, tensor: cpu::Tensor) -> Result<HostMemory> {
        Ok(tensor.into_data())
    }

    fn logits<'r>(
        &self,
        reply: &ResponseTensor<'r>,
        logit_type: LogitType,
        classes: usize,
        size: Shape3,
    ) -> Result<cpu::Logits<'r>> {
        let bytes = reply.buffer.host().ok_or_else(|| {
            let (name, kind) = (&reply.name, reply.buffer.kind());
            Error::unsupported(format!("output '{name}' lies in {kind}; accepted on the CPU is host memory"))
        })?;
        cpu::Logits::new(bytes, logit_type, classes, size)
    }

    fn write_output(
        &self,
        labels: &[&cpu::Labels],
        mut output: Output<'_>,
        label_type: LabelType,
    ) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let MemoryKind::Gpu(id) = output.kind() {
            let mut staged = self.copier().take(output.byte_size())?;
            write_all(self, labels, staged.as_mut_slice(), label_type)?;
            return self.copier().write(staged.as_slice(), &mut output, id);
        }
        write_all(self, labels, output.bytes_mut()?, label_type)
    }
}

/// Writes the volumes' labels to memory of the host, one after the other.
fn write_all(cpu: &Cpu, labels: &[&cpu::Labels], to: &mut [u8], label_type: LabelType) -> Result<()> {
    let each = to.len() / labels.len().max(1);
    let places = to.chunks_exact_mut(each.max(1));
    labels
        .iter()
        .zip(places)
        .try_for_each(|(labels, place)| cpu.write(labels, cpu::Output::new(place, label_type)))
}
