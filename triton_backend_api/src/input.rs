//! One input of a request.

use std::borrow::Cow;
use std::marker::PhantomData;

use crate::data_type::{DataType, Element};
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::{raw, sys};

/// An input tensor: its description, and the buffers it lies in.
///
/// A tensor lies in one buffer or in many (HTTP delivers large ones in pieces, split anywhere); [`Input::bytes`]
/// and [`Input::elements`] give one contiguous view, without a copy where there is one buffer already.
pub struct Input<'a> {
    raw: *mut sys::TRITONBACKEND_Input,
    name: String,
    data_type: DataType,
    shape: &'a [i64],
    byte_size: usize,
    buffer_count: u32,
    request: PhantomData<&'a ()>,
}

impl<'a> Input<'a> {
    /// # Safety
    /// `raw` is an input of a request that is not released while `'a` lasts.
    pub(crate) unsafe fn new(raw: *mut sys::TRITONBACKEND_Input) -> Result<Self> {
        // SAFETY: a live input.
        let (tensor, byte_size, buffer_count) = unsafe { raw::input_properties(raw) }?;
        // SAFETY: the server keeps name and shape as long as the request.
        let (name, shape) = unsafe { (raw::text(tensor.name), tensor.shape()) };
        let data_type = DataType::from_raw(tensor.data_type);
        let byte_size = usize::try_from(byte_size)
            .map_err(|_| Error::invalid_arg(format!("input '{name}': {byte_size} bytes are too many")))?;
        if data_type.byte_size().is_some() {
            let wanted =
                data_type.tensor_byte_size(shape).map_err(|e| e.context(format!("input '{name}'")))?;
            if wanted != byte_size {
                return Err(Error::invalid_arg(format!(
                    "input '{name}': {byte_size} bytes came for {data_type} {shape:?}, which takes {wanted}"
                )));
            }
        }
        Ok(Self { raw, name, data_type, shape, byte_size, buffer_count, request: PhantomData })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its element type.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Its shape, the batch axis included.
    pub fn shape(&self) -> &'a [i64] {
        self.shape
    }

    /// Its size in bytes; for types of fixed size it agrees with the shape.
    pub fn byte_size(&self) -> usize {
        self.byte_size
    }

    /// In how many buffers it lies.
    pub fn buffer_count(&self) -> u32 {
        self.buffer_count
    }

    /// One of its buffers, wherever it is.
    pub fn buffer(&self, index: u32) -> Result<Buffer<'a>> {
        // SAFETY: a live input.
        let buffer = unsafe { raw::input_buffer(self.raw, index) }?;
        // SAFETY: the server keeps a request's input buffers unchanged until the request is released.
        Ok(unsafe { Buffer::new(buffer) })
    }

    /// All its bytes, contiguous: in place where one host buffer holds them, else gathered.
    pub fn bytes(&self) -> Result<Cow<'a, [u8]>> {
        if let Some(bytes) = self.in_place()? {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut bytes = self.room(self.byte_size)?;
        self.gather(|part| bytes.extend_from_slice(part))?;
        Ok(Cow::Owned(bytes))
    }

    /// All its bytes where they lie, if one host buffer holds them.
    pub fn in_place(&self) -> Result<Option<&'a [u8]>> {
        if self.buffer_count != 1 {
            return Ok(None);
        }
        Ok(self.buffer(0)?.host().filter(|bytes| bytes.len() == self.byte_size))
    }

    /// Gathers all its bytes into memory of exactly their size.
    pub fn copy_to(&self, target: &mut [u8]) -> Result<()> {
        if target.len() != self.byte_size {
            let (name, size, room) = (&self.name, self.byte_size, target.len());
            return Err(Error::internal(format!(
                "input '{name}' has {size} bytes; there is room for {room}"
            )));
        }
        let mut end = 0;
        self.gather(|part| {
            target[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        })
    }

    /// All its elements, contiguous, in C order: in place where one aligned host buffer holds them, else gathered.
    pub fn elements<T: Element>(&self) -> Result<Cow<'a, [T]>> {
        if T::DATA_TYPE != self.data_type {
            return Err(Error::invalid_arg(format!(
                "input '{}' is {}, read as {}",
                self.name,
                self.data_type,
                T::DATA_TYPE
            )));
        }
        if let Some(bytes) = self.in_place()? {
            // SAFETY: every bit pattern is a value of T (see `Element`).
            let (before, elements, after) = unsafe { bytes.align_to::<T>() };
            if before.is_empty() && after.is_empty() {
                return Ok(Cow::Borrowed(elements));
            }
        }
        let count = self.byte_size / size_of::<T>();
        let mut elements: Vec<T> = self.room(count)?;
        elements.resize(count, T::default());
        // SAFETY: the vector's elements as bytes, borrowed uniquely; any bytes are valid elements.
        let target = unsafe {
            std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast::<u8>(), count * size_of::<T>())
        };
        self.copy_to(target)?;
        Ok(Cow::Owned(elements))
    }

    fn room<T>(&self, count: usize) -> Result<Vec<T>> {
        let mut room = Vec::new();
        room.try_reserve_exact(count).map_err(|_| {
            Error::unavailable(format!("out of memory: {} bytes for input '{}'", self.byte_size, self.name))
        })?;
        Ok(room)
    }

    /// Passes every buffer's bytes on, in order, after checking that together they are `byte_size`.
    fn gather(&self, mut part: impl FnMut(&[u8])) -> Result<()> {
        let buffers = (0..self.buffer_count).map(|index| self.buffer(index)).collect::<Result<Vec<_>>>()?;
        let total: u128 = buffers.iter().map(|buffer| buffer.byte_size() as u128).sum();
        if total != self.byte_size as u128 {
            return Err(Error::internal(format!(
                "input '{}': its buffers hold {total} bytes, its description says {}",
                self.name, self.byte_size
            )));
        }
        for buffer in buffers {
            let bytes = buffer.host().ok_or_else(|| {
                Error::unsupported(format!(
                    "input '{}' lies in {}; only host memory can be read here",
                    self.name,
                    buffer.kind()
                ))
            })?;
            part(bytes);
        }
        Ok(())
    }
}
