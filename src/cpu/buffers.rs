//! The host's buffers. Those that others own are bytes: nothing promises that they are aligned.

use std::fmt;

use triton_backend_api::{Error, HostMemory, HostPool, Result};

use crate::volume::{LabelType, LogitType, Shape3, VoxelType};

/// One volume of the input, in the caller's memory.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
    voxel_type: VoxelType,
    shape: Shape3,
}

/// The voxels of an input, by their type.
pub(super) enum Voxels<'a> {
    Fp32(&'a [[u8; 4]]),
    Int16(&'a [[u8; 2]]),
}

impl<'a> Input<'a> {
    /// A volume in C order and native byte order; `bytes` must be exactly its size.
    pub fn new(bytes: &'a [u8], voxel_type: VoxelType, shape: Shape3) -> Result<Self> {
        check_size("an input volume", bytes.len(), shape.count(), voxel_type.size())?;
        Ok(Self { bytes, voxel_type, shape })
    }

    /// The size along each axis.
    pub fn shape(&self) -> Shape3 {
        self.shape
    }

    /// The voxels as they lie in memory.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Their type.
    pub fn voxel_type(&self) -> VoxelType {
        self.voxel_type
    }

    pub(super) fn voxels(&self) -> Voxels<'a> {
        match self.voxel_type {
            VoxelType::Fp32 => Voxels::Fp32(self.bytes.as_chunks().0),
            VoxelType::Int16 => Voxels::Int16(self.bytes.as_chunks().0),
        }
    }
}

/// A resized volume: what the network reads.
pub struct Tensor {
    data: HostMemory,
    shape: Shape3,
    /// Whether it is known that every voxel of the input that it was made of is a finite number.
    pub(super) is_of_finite: bool,
}

impl Tensor {
    /// A tensor with these voxels in C order.
    pub fn new(data: &[f32], shape: Shape3) -> Result<Self> {
        check_size("a resized volume", size_of_val(data), shape.count(), size_of::<f32>())?;
        let mut tensor = Self::take(&HostPool::new(0), shape)?;
        tensor.data_mut().copy_from_slice(data);
        Ok(tensor)
    }

    /// A tensor of undefined contents.
    pub(super) fn take(pool: &HostPool, shape: Shape3) -> Result<Self> {
        let data = take(pool, shape.count(), size_of::<f32>(), "the resized volume")?;
        Ok(Self { data, shape, is_of_finite: false })
    }

    /// The voxels in C order.
    pub fn data(&self) -> &[f32] {
        self.data.elements()
    }

    /// The voxels in C order, given away.
    pub fn into_data(self) -> HostMemory {
        self.data
    }

    pub(super) fn data_mut(&mut self) -> &mut [f32] {
        self.data.elements_mut()
    }

    /// The size along each axis.
    pub fn shape(&self) -> Shape3 {
        self.shape
    }
}

/// The network's reply for one volume, in its owner's memory: one volume of scores after the other, one for each class.
#[derive(Clone, Copy, Debug)]
pub struct Logits<'a> {
    bytes: &'a [u8],
    logit_type: LogitType,
    classes: usize,
    shape: Shape3,
}

/// The scores of a reply, by their type.
pub(super) enum Scores<'a> {
    Fp32(&'a [[u8; 4]]),
    Fp16(&'a [[u8; 2]]),
}

impl<'a> Logits<'a> {
    /// More classes than labels can name.
    const TOO_MANY: usize = u8::MAX as usize + 2;

    /// Scores of `classes` classes in C order and native byte order; `bytes` must be exactly their size.
    pub fn new(bytes: &'a [u8], logit_type: LogitType, classes: usize, shape: Shape3) -> Result<Self> {
        if !(1..Self::TOO_MANY).contains(&classes) {
            let most = Self::TOO_MANY - 1;
            return Err(Error::unsupported(format!("scores of {classes} classes; accepted are 1 to {most}")));
        }
        let count =
            shape.count().checked_mul(classes).filter(|&count| count <= usize::MAX / logit_type.size());
        let count = count.ok_or_else(|| {
            Error::invalid_arg(format!("scores of {classes} classes for {shape} voxels cannot be addressed"))
        })?;
        check_size("a volume of scores", bytes.len(), count, logit_type.size())?;
        Ok(Self { bytes, logit_type, classes, shape })
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The size along each axis.
    pub fn shape(&self) -> Shape3 {
        self.shape
    }

    /// The scores as they lie in memory.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Their type.
    pub fn logit_type(&self) -> LogitType {
        self.logit_type
    }

    pub(super) fn scores(&self) -> Scores<'a> {
        match self.logit_type {
            LogitType::Fp32 => Scores::Fp32(self.bytes.as_chunks().0),
            LogitType::Fp16 => Scores::Fp16(self.bytes.as_chunks().0),
        }
    }
}

/// One label per voxel.
pub struct Labels {
    data: HostMemory,
    shape: Shape3,
    highest: u8,
}

impl Labels {
    /// A label map in C order; `data` must have one label per voxel.
    pub fn new(data: &[u8], shape: Shape3) -> Result<Self> {
        check_size("a label map", data.len(), shape.count(), 1)?;
        let highest = data.iter().copied().max().unwrap_or(0);
        let mut labels = Self::take(&HostPool::new(0), shape, highest)?;
        labels.data_mut().copy_from_slice(data);
        Ok(labels)
    }

    /// A label map of undefined contents, which will be at most `highest`.
    pub(super) fn take(pool: &HostPool, shape: Shape3, highest: u8) -> Result<Self> {
        Ok(Self { data: take(pool, shape.count(), size_of::<u8>(), "a label map")?, shape, highest })
    }

    /// The labels in C order.
    pub fn data(&self) -> &[u8] {
        self.data.as_slice()
    }

    /// The labels in C order, given away.
    pub fn into_data(self) -> HostMemory {
        self.data
    }

    /// No label is above this one.
    pub fn highest(&self) -> u8 {
        self.highest
    }

    /// The size along each axis.
    pub fn shape(&self) -> Shape3 {
        self.shape
    }

    pub(super) fn data_mut(&mut self) -> &mut [u8] {
        self.data.as_mut_slice()
    }
}

impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        self.shape == other.shape && self.data() == other.data()
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Labels").field("shape", &self.shape).field("data", &self.data()).finish()
    }
}

/// Memory for `count` elements of `size` bytes; `what` names their use in the error.
fn take(pool: &HostPool, count: usize, size: usize, what: &str) -> Result<HostMemory> {
    pool.take(count * size).map_err(|e| e.context(what))
}

/// A place for the labels of one volume, in the caller's memory.
#[derive(Debug)]
pub struct Output<'a> {
    /// As long as the labels in this type.
    pub bytes: &'a mut [u8],
    /// The type wanted.
    pub label_type: LabelType,
}

impl<'a> Output<'a> {
    /// A place for labels of this type; that it has the right size is checked when they are written.
    pub fn new(bytes: &'a mut [u8], label_type: LabelType) -> Self {
        Self { bytes, label_type }
    }
}

/// INTERNAL unless `bytes` is `count` elements of `size` bytes; callers have checked what clients and models send.
pub(super) fn check_size(what: &str, bytes: usize, count: usize, size: usize) -> Result<()> {
    if bytes == count * size {
        return Ok(());
    }
    Err(Error::internal(format!(
        "{what} has {bytes} bytes; {count} elements of {size} bytes are {}",
        count * size
    )))
}
