//! The GPU's buffers, and those of others that it reads and writes.

use std::cell::Cell;
use std::marker::PhantomData;

use triton_backend_api::MemoryKind;

use super::memory::DeviceMemory;
use super::queue::DeviceSpan;
use super::steps::{InputSpan, LabelsSpan, LogitsSpan};
use super::transfer::Place;
use crate::volume::{LabelType, LogitType, Shape3, VoxelType};

/// All of INPUT0: used where it lies if that is on this GPU, else copied there by the first step that reads it.
pub struct Source<'a> {
    pub(super) places: Vec<Place>,
    /// Where it is copied to; none where it is used in place.
    pub(super) memory: Option<DeviceMemory>,
    pub(super) owner: PhantomData<&'a ()>,
}

impl Source<'_> {
    fn base(&self) -> u64 {
        match (&self.memory, self.places.first()) {
            (Some(memory), _) => memory.base(),
            (None, Some(place)) => place.base(),
            (None, None) => 0,
        }
    }
}

/// One volume of a [`Source`].
pub struct Input<'s> {
    pub(super) places: &'s [Place],
    /// Where it begins among all bytes of the source.
    pub(super) offset: usize,
    /// Whether it is on the GPU.
    pub(super) is_there: Cell<bool>,
    pub(super) span: InputSpan<'s>,
}

impl<'s> Input<'s> {
    pub(super) fn new(source: &'s Source<'_>, offset: usize, voxel_type: VoxelType, shape: Shape3) -> Self {
        let byte_size = shape.count() * voxel_type.size();
        // SAFETY: part of memory of this GPU that is the source's, or that the server keeps unchanged as long as it.
        let voxels = unsafe { DeviceSpan::new(source.base() + offset as u64, byte_size) };
        let is_there = Cell::new(source.memory.is_none());
        Self { places: &source.places, offset, is_there, span: InputSpan { voxels, voxel_type, shape } }
    }
}

/// A resized volume: what the network reads.
pub struct Tensor {
    pub(super) memory: DeviceMemory,
}

/// The network's reply for one volume, on the GPU.
pub struct Logits<'a> {
    /// Where it was copied to, if it came elsewhere.
    pub(super) copied: Option<DeviceMemory>,
    pub(super) place: Place,
    pub(super) logit_type: LogitType,
    pub(super) classes: usize,
    pub(super) shape: Shape3,
    pub(super) owner: PhantomData<&'a ()>,
}

impl Logits<'_> {
    pub(super) fn span(&self) -> LogitsSpan<'_> {
        let base = self.copied.as_ref().map_or(self.place.base(), DeviceMemory::base);
        // SAFETY: memory of this GPU that is ours, or that the reply keeps.
        let scores = unsafe { DeviceSpan::new(base, self.place.byte_size()) };
        LogitsSpan { scores, logit_type: self.logit_type, classes: self.classes, shape: self.shape }
    }
}

/// One label per voxel.
pub struct Labels {
    pub(super) memory: DeviceMemory,
    pub(super) shape: Shape3,
    /// No label is above this one.
    pub(super) highest: u8,
}

impl Labels {
    pub(super) fn span(&self) -> LabelsSpan<'_> {
        LabelsSpan { data: self.memory.span(), shape: self.shape, highest: self.highest }
    }
}

/// A place for the labels of one volume, in the server's memory.
pub struct Output<'a> {
    pub(super) place: Place,
    pub(super) label_type: LabelType,
    pub(super) owner: PhantomData<&'a mut ()>,
}

impl Output<'_> {
    /// The place as memory of this GPU that kernels can write to; none where they cannot.
    pub(super) fn on(&self, gpu: i64) -> Option<DeviceSpan<'_>> {
        let aligned = self.place.base().is_multiple_of(self.label_type.size() as u64);
        // SAFETY: the output's own memory of this GPU, for as long as it is borrowed.
        (self.place.kind() == MemoryKind::Gpu(gpu) && aligned)
            .then(|| unsafe { DeviceSpan::new(self.place.base(), self.place.byte_size()) })
    }
}
