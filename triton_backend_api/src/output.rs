//! One output of a response.

use std::marker::PhantomData;

use crate::data_type::DataType;
use crate::error::{Error, Result};
use crate::memory::MemoryKind;
use crate::raw;

/// The place where an output's bytes go: the client's own memory where it registered some.
pub struct Output<'a> {
    name: String,
    buffer: raw::Buffer,
    kind: MemoryKind,
    response: PhantomData<&'a mut ()>,
}

// SAFETY: the memory is this output's alone until the response is sent, whichever thread writes it.
unsafe impl Send for Output<'_> {}

impl Output<'_> {
    /// Asks the server for the output's memory, of the kind `preferred` where it can.
    ///
    /// # Safety
    /// `raw` is a response that is neither sent nor deleted while `'a` lasts.
    pub(crate) unsafe fn new(
        raw: *mut crate::sys::TRITONBACKEND_Response,
        name: &str,
        data_type: DataType,
        shape: &[i64],
        preferred: MemoryKind,
    ) -> Result<Self> {
        let byte_size =
            data_type.tensor_byte_size(shape).map_err(|e| e.context(format!("output '{name}'")))?;
        let text = crate::c_string(name)?;
        let (memory_type, id) = preferred.to_raw();
        // SAFETY: a live response; the name is NUL-terminated.
        let output = unsafe { raw::response_output(raw, text.as_ptr(), data_type.to_raw(), shape) }?;
        // SAFETY: an output of the live response.
        let buffer = unsafe { raw::output_buffer(output, byte_size, memory_type, id) }
            .map_err(|e| e.context(format!("output '{name}': no {byte_size} bytes to write to")))?;
        let kind = MemoryKind::from_raw(buffer.memory_type, buffer.memory_type_id);
        if buffer.base.is_null() && byte_size > 0 {
            return Err(Error::internal(format!("output '{name}': the server gave no memory to write to")));
        }
        Ok(Self { name: name.to_owned(), buffer, kind, response: PhantomData })
    }

    /// Where it lies: not necessarily where one asked.
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Its size in bytes.
    pub fn byte_size(&self) -> usize {
        self.buffer.byte_size
    }

    /// Its address, which the CPU may write only where [`MemoryKind::is_host`] says so.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.buffer.base.cast()
    }

    /// Its bytes; an error where the CPU cannot write them. They can start at any address.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        if self.buffer.byte_size == 0 {
            return Ok(&mut []);
        }
        if !self.kind.is_host() {
            return Err(Error::unsupported(format!(
                "output '{}' lies in {}; only host memory can be written here",
                self.name, self.kind
            )));
        }
        // SAFETY: host memory of that size, this output's alone until the response is sent; bytes need neither
        // alignment nor a particular value.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.buffer.base.cast(), self.buffer.byte_size) })
    }
}
