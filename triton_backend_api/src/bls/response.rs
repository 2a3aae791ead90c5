//! The answer of another model.

use std::borrow::Cow;
use std::sync::Arc;

use crate::bls::allocator::Allocator;
use crate::byte_strings::ByteStrings;
use crate::data_type::{DataType, Element};
use crate::device::DeviceSlice;
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::parameter::{self, Parameter};
use crate::{raw, sys};

/// A response to an in-process request; its outputs live as long as it.
pub struct InferenceResponse {
    raw: *mut sys::TRITONSERVER_InferenceResponse,
    /// Deleting the response gives its memory back to the allocator.
    _allocator: Arc<Allocator>,
}

// SAFETY: the server's response has no tie to a thread and does not change once it is delivered.
unsafe impl Send for InferenceResponse {}
// SAFETY: as above.
unsafe impl Sync for InferenceResponse {}

/// One output of a response.
pub struct ResponseTensor<'a> {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub data_type: DataType,
    /// Its shape, the batch axis included.
    pub shape: &'a [i64],
    /// Its memory, wherever it is. The size agrees with type and shape where the type has a fixed size.
    pub buffer: Buffer<'a>,
}

impl<'a> ResponseTensor<'a> {
    /// Its elements in C order, in place where they are aligned. INVALID_ARG for another element type, UNSUPPORTED where
    /// the CPU cannot read them.
    pub fn elements<T: Element>(&self) -> Result<Cow<'a, [T]>> {
        self.check_type(T::DATA_TYPE)?;
        let bytes = self.bytes()?;
        // SAFETY: every bit pattern is a value of T (see `Element`).
        let (before, elements, after) = unsafe { bytes.align_to::<T>() };
        if before.is_empty() && after.is_empty() {
            return Ok(Cow::Borrowed(elements));
        }
        let mut copy = vec![T::default(); bytes.len() / size_of::<T>()];
        // SAFETY: as many bytes as the elements take, which hold any bytes; the two do not overlap.
        unsafe { bytes.as_ptr().copy_to_nonoverlapping(copy.as_mut_ptr().cast(), size_of_val(&copy[..])) };
        Ok(Cow::Owned(copy))
    }

    /// Its elements where they lie on a GPU. UNSUPPORTED where they do not, or are not aligned for `T`; INVALID_ARG for
    /// another element type.
    pub fn device_slice<T: Element>(&self) -> Result<DeviceSlice<'a, T>> {
        self.check_type(T::DATA_TYPE)?;
        let named = |reason| Error::unsupported(format!("output '{}': {reason}", self.name));
        self.buffer.device().map_err(named)
    }

    /// The elements of a BYTES tensor. INVALID_ARG where the bytes are not what their shape says, or the tensor is of
    /// another type; UNSUPPORTED where the CPU cannot read them.
    pub fn byte_strings(&self) -> Result<ByteStrings<'a>> {
        self.check_type(DataType::Bytes)?;
        let named = |e: Error| e.context(format!("output '{}'", self.name));
        let count = self.data_type.element_count(self.shape).map_err(named)?;
        ByteStrings::decode(self.bytes()?, count).map_err(named)
    }

    fn bytes(&self) -> Result<&'a [u8]> {
        let (name, kind) = (&self.name, self.buffer.kind());
        let unreadable = || {
            Error::unsupported(format!("output '{name}' lies in {kind}; only host memory can be read here"))
        };
        self.buffer.host().ok_or_else(unreadable)
    }

    fn check_type(&self, wanted: DataType) -> Result<()> {
        match wanted == self.data_type {
            true => Ok(()),
            false => {
                let (name, is) = (&self.name, self.data_type);
                Err(Error::invalid_arg(format!("output '{name}' is {is}, read as {wanted}")))
            }
        }
    }
}

impl InferenceResponse {
    /// # Safety
    /// `raw` is a response that the server handed over, made with `allocator`.
    pub(crate) unsafe fn new(
        raw: *mut sys::TRITONSERVER_InferenceResponse,
        allocator: Arc<Allocator>,
    ) -> Self {
        Self { raw, _allocator: allocator }
    }

    /// The model's own error, if it answered with one.
    pub fn error(&self) -> Result<()> {
        // SAFETY: a live response.
        unsafe { raw::inferred_error(self.raw) }
    }

    /// Name and version of the model that answered.
    pub fn model(&self) -> Result<(String, i64)> {
        // SAFETY: a live response; the name is copied at once.
        unsafe { raw::inferred_model(self.raw).map(|(name, version)| (raw::text(name), version)) }
    }

    /// The id of the request that it answers; empty for none.
    pub fn id(&self) -> Result<String> {
        // SAFETY: a live response; the id is copied at once.
        unsafe { raw::inferred_id(self.raw).map(|id| raw::text(id)) }
    }

    /// Its parameters, in the order in which the model set them.
    pub fn parameters(&self) -> Result<Vec<(String, Parameter)>> {
        // SAFETY: a live response; what belongs to it is copied at once.
        unsafe {
            let count = raw::inferred_parameter_count(self.raw)?;
            (0..count)
                .map(|index| raw::inferred_parameter(self.raw, index).map(|found| parameter::read(found)))
                .collect()
        }
    }

    /// The parameter of that name; `None` where the model set none.
    pub fn parameter(&self, name: &str) -> Result<Option<Parameter>> {
        Ok(self.parameters()?.into_iter().find(|parameter| parameter.0 == name).map(|parameter| parameter.1))
    }

    /// How many outputs it has.
    pub fn output_count(&self) -> Result<u32> {
        // SAFETY: a live response.
        unsafe { raw::inferred_output_count(self.raw) }
    }

    /// The output at that position.
    pub fn output_by_index(&self, index: u32) -> Result<ResponseTensor<'_>> {
        // SAFETY: a live response, which owns name, shape and memory and outlives the borrow.
        let (name, data_type, shape, buffer) = unsafe {
            let (tensor, buffer) = raw::inferred_output(self.raw, index)?;
            (raw::text(tensor.name), tensor.data_type, tensor.shape(), Buffer::new(buffer))
        };
        let data_type = DataType::from_raw(data_type);
        if data_type.byte_size().is_some() {
            let wanted =
                data_type.tensor_byte_size(shape).map_err(|e| e.context(format!("output '{name}'")))?;
            if wanted != buffer.byte_size() {
                return Err(Error::internal(format!(
                    "output '{name}': {} bytes came for {data_type} {shape:?}, which takes {wanted}",
                    buffer.byte_size()
                )));
            }
        }
        Ok(ResponseTensor { name, data_type, shape, buffer })
    }

    /// The output of that name; where there is none the error lists those that came.
    pub fn output(&self, name: &str) -> Result<ResponseTensor<'_>> {
        let mut found = Vec::new();
        for index in 0..self.output_count()? {
            let tensor = self.output_by_index(index)?;
            if tensor.name == name {
                return Ok(tensor);
            }
            found.push(tensor.name);
        }
        Err(Error::not_found(format!("no output '{name}' came, but {found:?}")))
    }
}

impl Drop for InferenceResponse {
    fn drop(&mut self) {
        // SAFETY: ours, deleted once.
        let _ = unsafe { raw::inferred_delete(self.raw) };
    }
}
