//! Where the GPU's buffers meet Triton's memory.

use std::marker::PhantomData;

use triton_backend_api::bls::ResponseTensor;
use triton_backend_api::{HostMemory, Input, MemoryKind, Output, Result};

use super::buffers::{self, Labels, Logits, Source, Tensor};
use super::memory::DeviceMemory;
use super::session::Session;
use super::transfer::Place;
use crate::bridge::Bridge;
use crate::volume::{LabelType, LogitType, Shape3, VoxelType};

impl Bridge for Session<'_> {
    type Source<'a> = Source<'a>;
    type Memory = DeviceMemory;

    fn output_memory(&self) -> MemoryKind {
        MemoryKind::Gpu(self.gpu_id())
    }

    fn answers_where_made(&self) -> bool {
        true
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
