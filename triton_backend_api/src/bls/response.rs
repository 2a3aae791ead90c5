//! The answer of another model.

use std::sync::Arc;

use crate::bls::allocator::Allocator;
use crate::data_type::DataType;
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
