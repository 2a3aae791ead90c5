//! One output of a response.

use std::marker::PhantomData;

use crate::byte_strings::ByteStrings;
use crate::data_type::{DataType, Element};
use crate::device::DeviceSliceMut;
use crate::error::{Error, Result};
use crate::memory::MemoryKind;
use crate::raw;

/// The place where an output's bytes go: the client's own memory where it registered some.
///
/// On the host it is written through [`Output::write`], which takes any address, [`Output::slice_mut`] or
/// [`Output::bytes_mut`]; on a GPU through [`Output::device_slice_mut`]. [`Output::kind`] says which.
pub struct Output<'a> {
    name: String,
    data_type: DataType,
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
        byte_size: usize,
        preferred: MemoryKind,
    ) -> Result<Self> {
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
        Ok(Self { name: name.to_owned(), data_type, buffer, kind, response: PhantomData })
    }

    /// Its element type.
    pub fn data_type(&self) -> DataType {
        self.data_type
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

    /// Writes all its elements, wherever on the host it starts. INVALID_ARG for another element type or another
    /// number of elements.
    pub fn write<T: Element>(&mut self, elements: &[T]) -> Result<()> {
        self.check_type(T::DATA_TYPE)?;
        if size_of_val(elements) != self.byte_size() {
            return Err(Error::invalid_arg(format!(
                "output '{}' takes {} elements; {} were given",
                self.name,
                self.byte_size() / size_of::<T>(),
                elements.len()
            )));
        }
        // SAFETY: numbers without padding, seen as the bytes that they are.
        let bytes =
            unsafe { std::slice::from_raw_parts(elements.as_ptr().cast::<u8>(), size_of_val(elements)) };
        self.bytes_mut()?.copy_from_slice(bytes);
        Ok(())
    }

    /// Its elements, to be written where they lie. UNSUPPORTED, saying why, where the CPU cannot write them or they
    /// are not aligned for `T`: then [`Output::write`] is the way. INVALID_ARG for another element type.
    pub fn slice_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        self.check_type(T::DATA_TYPE)?;
        let (name, at) = (self.name.clone(), self.buffer.base);
        let bytes = self.bytes_mut()?;
        if bytes.is_empty() {
            return Ok(&mut []);
        }
        // SAFETY: every bit pattern is a value of T, and any value of T is bytes (see `Element`).
        let (before, elements, after) = unsafe { bytes.align_to_mut::<T>() };
        match before.is_empty() && after.is_empty() {
            true => Ok(elements),
            false => Err(Error::unsupported(format!(
                "output '{name}' cannot be written as {}: it starts at {at:?}, not at a multiple of {}",
                T::DATA_TYPE,
                align_of::<T>()
            ))),
        }
    }

    /// Its elements on a GPU. UNSUPPORTED, saying why, where it is not there or not aligned for `T`. INVALID_ARG for
    /// another element type. Work that writes them has to be done before the response is sent.
    pub fn device_slice_mut<T: Element>(&mut self) -> Result<DeviceSliceMut<'_, T>> {
        self.check_type(T::DATA_TYPE)?;
        let base = self.as_mut_ptr();
        let device = self
            .kind
            .device_of::<T>(base)
            .map_err(|reason| Error::unsupported(format!("output '{}': {reason}", self.name)))?;
        // SAFETY: memory of that GPU, aligned, and this output's alone until the response is sent.
        Ok(unsafe { DeviceSliceMut::new(base.cast(), self.byte_size() / size_of::<T>(), device) })
    }

    /// Writes the elements of a BYTES tensor.
    pub(crate) fn write_byte_strings(&mut self, elements: &[impl AsRef<[u8]>]) -> Result<()> {
        let name = self.name.clone();
        ByteStrings::encode_into(elements, self.bytes_mut()?)
            .map_err(|e| e.context(format!("output '{name}'")))
    }

    fn check_type(&self, wanted: DataType) -> Result<()> {
        match wanted == self.data_type {
            true => Ok(()),
            false => Err(Error::invalid_arg(format!(
                "output '{}' is {}, written as {wanted}",
                self.name, self.data_type
            ))),
        }
    }
}
