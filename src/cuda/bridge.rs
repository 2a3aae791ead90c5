//! Where the GPU's buffers meet Triton's memory.

use std::marker::PhantomData;
use std::sync::Arc;

use triton_backend_api::bls::ResponseTensor;
use triton_backend_api::{HostMemory, Input, MemoryKind, Output, OutputMemory, Result, StableMemory};

use super::buffers::{self, Labels, Logits, Source, Tensor};
use super::memory::{DeviceMemory, OnDevice, Pool};
use super::session::Session;
use super::stream::Stream;
use super::transfer::Place;
use crate::bridge::Bridge;
use crate::volume::{LabelType, LogitType, Shape3, VoxelType};

/// Where the network's answers go that are made on the instance's GPU: its own memory. The server's pool for a GPU has 64 MB
/// unless an option says otherwise, and the scores of 2 x 224 x 224 x 224 voxels have 90.
pub struct Answers {
    pub(super) memory: Arc<Pool<OnDevice>>,
    pub(super) stream: Arc<Stream>,
}

// SAFETY: memory of the pool is its holder's alone, and what the instance's stream still did with it has been waited for: the
// network has a stream of its own.
unsafe impl OutputMemory for Answers {
    fn take(&self, byte_size: usize, preferred: MemoryKind) -> Option<Box<dyn StableMemory>> {
        const STEP: &str = "the network's scores";
        if preferred != MemoryKind::Gpu(self.memory.gpu_id()) {
            return None;
        }
        // What fails here fails again where the scores are needed, and is said there.
        let memory = self.memory.take(byte_size, STEP).ok()?;
        self.stream.wait_in_context(STEP).ok()?;
        Some(Box::new(memory))
    }
}

impl Bridge for Session<'_> {
    type Source<'a> = Source<'a>;
    type Memory = DeviceMemory;

    fn output_memory(&self) -> MemoryKind {
        MemoryKind::Gpu(self.gpu_id())
    }

    fn answer_memory(&self) -> Option<Arc<dyn OutputMemory>> {
        Some(self.answers().clone())
    }

    fn settle(&self) -> Option<String> {
        self.finish();
        self.is_timed().then(|| self.to_string())
    }

    fn read<'a>(&self, input: &Input<'a>) -> Result<Source<'a>> {
        let places: Vec<Place> =
            input.buffers()?.into_iter().map(Place::from).filter(|place| place.byte_size() > 0).collect();
        let align = input.data_type().byte_size().unwrap_or(1) as u64;
        let in_place = match places.as_slice() {
            [only] => only.kind() == self.output_memory() && only.base().is_multiple_of(align),
            _ => false,
        };
        let memory = if in_place { None } else { Some(self.memory(input.byte_size(), "INPUT0")?) };
        Ok(Source { places, memory, owner: PhantomData })
    }

    fn volumes<'s>(
        &self,
        source: &'s Source<'_>,
        voxel_type: VoxelType,
        size: Shape3,
    ) -> Result<Vec<buffers::Input<'s>>> {
        let each = size.count() * voxel_type.size();
        let total: usize = source.places.iter().map(|place| place.byte_size()).sum();
        Ok((0..total / each).map(|at| buffers::Input::new(source, at * each, voxel_type, size)).collect())
    }

    fn labels_to_host(&self, labels: Labels) -> Result<HostMemory> {
        let mut data = HostMemory::zeroed(labels.shape.count())?;
        // SAFETY: host memory of ours, which stays until the copy is done.
        let place = unsafe {
            let data = data.as_mut_slice();
            Place::new(data.as_mut_ptr() as u64, data.len(), MemoryKind::Host)
        };
        self.download(labels.memory.span(), place, "labels to the host")?;
        Ok(data)
    }

    fn memory(&self, tensor: Tensor) -> Result<DeviceMemory> {
        self.wait("the network's input")?;
        Ok(tensor.memory)
    }

    fn logits<'r>(
        &self,
        reply: &ResponseTensor<'r>,
        logit_type: LogitType,
        classes: usize,
        size: Shape3,
    ) -> Result<Logits<'r>> {
        const STEP: &str = "copying the network's scores";
        let place = Place::from(reply.buffer);
        let in_place =
            place.kind() == self.output_memory() && place.base().is_multiple_of(logit_type.size() as u64);
        let mut logits = Logits { copied: None, place, logit_type, classes, shape: size, owner: PhantomData };
        if !in_place {
            let memory = self.memory(place.byte_size(), STEP)?;
            let pieces = self.upload([place].into_iter(), memory.span(), STEP, |_| Ok(()))?;
            self.wait(STEP)?;
            drop(pieces);
            logits.copied = Some(memory);
        }
        Ok(logits)
    }

    fn write_output(&self, labels: &[&Labels], mut output: Output<'_>, label_type: LabelType) -> Result<()> {
        let each = output.byte_size() / labels.len().max(1);
        // SAFETY: the output's own memory, of that kind and size, which stays until the reply is sent.
        let place = unsafe { Place::new(output.as_mut_ptr() as u64, output.byte_size(), output.kind()) };
        labels.iter().enumerate().try_for_each(|(at, labels)| {
            let place = place.part(at * each..(at + 1) * each);
            crate::pipeline::Device::write(
                self,
                labels,
                buffers::Output { place, label_type, owner: PhantomData },
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Threads;
    use crate::cuda::queue::Queue;
    use crate::cuda::{Code, Gpu};

    #[test]
    fn the_network_gets_memory_that_nothing_works_on_any_more() {
        const SIZE: usize = 1 << 16;
        fake_driver::load();
        let gpu = Gpu::open("under test", 0, Code::Any, Threads::new(1).unwrap(), 1).unwrap();
        let session = gpu.session().unwrap();
        let memory = session.memory(SIZE, "test").unwrap();
        let base = memory.base();
        session.fill(memory.span(), 1).unwrap();
        drop(memory); // what fills it is still queued
        assert!(gpu.answers().take(SIZE, MemoryKind::Gpu(1)).is_none());
        let answer = gpu.answers().take(SIZE, MemoryKind::Gpu(0)).unwrap();
        assert_eq!(answer.as_ptr() as u64, base, "it serves again");
        fake_driver::write(base, &[2; SIZE]);
        session.finish();
        assert_eq!(fake_driver::read(base, SIZE), [2; SIZE]);
        let violations = fake_driver::violations();
        assert!(violations.is_empty(), "{violations}");
    }
}
