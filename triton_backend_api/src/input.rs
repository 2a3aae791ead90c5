//! One input of a request.

use std::borrow::Cow;
use std::ffi::{CString, c_char};
use std::marker::PhantomData;

use crate::byte_strings::ByteStrings;
use crate::c_string;
use crate::data_type::{DataType, Element};
use crate::device::DeviceSlice;
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::{raw, sys};

/// An input tensor: its description, and the buffers it lies in.
///
/// A tensor lies in one buffer or in many (HTTP delivers large ones in pieces, split anywhere), on the host or on a
/// GPU.
///
/// | wanted | one host buffer | several, or unaligned | on a GPU |
/// |---|---|---|---|
/// | [`Input::bytes`], [`Input::elements`] | in place | copied together | error |
/// | [`Input::slice`] | in place | error | error |
/// | [`Input::device_slice`] | error | error | in place |
/// | [`Input::buffer`] | each buffer as it is | each buffer as it is | each buffer as it is |
///
/// All of them check element type, shape and byte size. BYTES tensors are taken apart by [`Input::byte_strings`].
pub struct Input<'a> {
    raw: *mut sys::TRITONBACKEND_Input,
    name: String,
    data_type: DataType,
    shape: &'a [i64],
    byte_size: usize,
    buffer_count: u32,
    /// Whose buffers these are; `None` for those that all instances get.
    host_policy: Option<CString>,
    request: PhantomData<&'a ()>,
}

impl<'a> Input<'a> {
    /// # Safety
    /// `raw` is an input of a request that is not released while `'a` lasts.
    pub(crate) unsafe fn new(raw: *mut sys::TRITONBACKEND_Input) -> Result<Self> {
        // SAFETY: see above.
        unsafe { Self::of_policy(raw, None) }
    }

    /// # Safety
    /// As for [`Input::new`].
    unsafe fn of_policy(raw: *mut sys::TRITONBACKEND_Input, host_policy: Option<CString>) -> Result<Self> {
        // SAFETY: a live input; the name is NUL-terminated.
        let (tensor, byte_size, buffer_count) =
            unsafe { raw::input_properties(raw, policy_name(host_policy.as_ref())) }?;
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
        Ok(Self { raw, name, data_type, shape, byte_size, buffer_count, host_policy, request: PhantomData })
    }

    /// The same tensor in the buffers that its sender meant for instances of this host policy. Where the sender gave
    /// none of the kind these are the buffers that all instances get.
    pub fn for_host_policy(&self, policy: &str) -> Result<Input<'a>> {
        // SAFETY: a live input of the same request.
        unsafe { Self::of_policy(self.raw, Some(c_string(policy)?)) }
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
        // SAFETY: a live input; the name is NUL-terminated.
        let buffer = unsafe { raw::input_buffer(self.raw, policy_name(self.host_policy.as_ref()), index) }?;
        // SAFETY: the server keeps a request's input buffers unchanged until the request is released.
        Ok(unsafe { Buffer::new(buffer) })
    }

    /// All its buffers, in order, wherever they are. Together they have [`Input::byte_size`] bytes.
    pub fn buffers(&self) -> Result<Vec<Buffer<'a>>> {
        let buffers = (0..self.buffer_count).map(|index| self.buffer(index)).collect::<Result<Vec<_>>>()?;
        self.check_total(buffers.iter().map(|buffer| buffer.byte_size() as u128).sum())?;
        Ok(buffers)
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

    /// All its elements where they lie, in C order. Nothing is copied: UNSUPPORTED, saying why, where they are not in
    /// one host buffer that is aligned for `T`. INVALID_ARG for another element type.
    pub fn slice<T: Element>(&self) -> Result<&'a [T]> {
        self.check_type(T::DATA_TYPE)?;
        let bytes = match self.single()? {
            None => &[],
            Some(buffer) => buffer
                .host()
                .ok_or_else(|| self.not_in_place(format_args!("it lies in {}", buffer.kind())))?,
        };
        aligned(bytes).ok_or_else(|| {
            let (at, align) = (bytes.as_ptr(), align_of::<T>());
            self.not_in_place(format_args!("it starts at {at:?}, not at a multiple of {align}"))
        })
    }

    /// All its elements where they lie on a GPU, in C order. UNSUPPORTED, saying why, where they are not in one buffer
    /// there, or not aligned for `T`. INVALID_ARG for another element type.
    pub fn device_slice<T: Element>(&self) -> Result<DeviceSlice<'a, T>> {
        self.check_type(T::DATA_TYPE)?;
        let buffer = self.single()?.ok_or_else(|| self.not_in_place("it has no buffer"))?;
        buffer.device().map_err(|reason| self.not_in_place(reason))
    }

    /// The elements of a BYTES tensor, in place where one host buffer holds them. INVALID_ARG where the bytes are not
    /// what their shape says, or the tensor is of another type.
    pub fn byte_strings(&self) -> Result<ByteStrings<'a>> {
        self.check_type(DataType::Bytes)?;
        let named = |e: Error| e.context(format!("input '{}'", self.name));
        let count = self.data_type.element_count(self.shape).map_err(named)?;
        ByteStrings::decode(self.bytes()?, count).map_err(named)
    }

    /// Its one buffer; `None` where it has none because it is empty.
    fn single(&self) -> Result<Option<Buffer<'a>>> {
        match self.buffer_count {
            0 if self.byte_size == 0 => Ok(None),
            1 => {
                let buffer = self.buffer(0)?;
                self.check_total(buffer.byte_size() as u128)?;
                Ok(Some(buffer))
            }
            count => Err(self.not_in_place(format_args!("it lies in {count} buffers"))),
        }
    }

    fn not_in_place(&self, reason: impl std::fmt::Display) -> Error {
        Error::unsupported(format!("input '{}' cannot be used where it is: {reason}", self.name))
    }

    fn check_type(&self, wanted: DataType) -> Result<()> {
        match wanted == self.data_type {
            true => Ok(()),
            false => Err(Error::invalid_arg(format!(
                "input '{}' is {}, read as {wanted}",
                self.name, self.data_type
            ))),
        }
    }

    fn check_total(&self, total: u128) -> Result<()> {
        match total == self.byte_size as u128 {
            true => Ok(()),
            false => Err(Error::internal(format!(
                "input '{}': its buffers hold {total} bytes, its description says {}",
                self.name, self.byte_size
            ))),
        }
    }

    /// All its elements, contiguous, in C order: in place where one aligned host buffer holds them, else gathered.
    pub fn elements<T: Element>(&self) -> Result<Cow<'a, [T]>> {
        self.check_type(T::DATA_TYPE)?;
        if let Some(elements) = self.in_place()?.and_then(aligned) {
            return Ok(Cow::Borrowed(elements));
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
        for buffer in self.buffers()? {
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

fn policy_name(policy: Option<&CString>) -> *const c_char {
    policy.map_or(std::ptr::null(), |name| name.as_ptr())
}

/// Bytes as elements, where they start at a multiple of the type's alignment and are a whole number of elements.
fn aligned<T: Element>(bytes: &[u8]) -> Option<&[T]> {
    if bytes.is_empty() {
        return Some(&[]);
    }
    // SAFETY: every bit pattern is a value of T (see `Element`).
    let (before, elements, after) = unsafe { bytes.align_to::<T>() };
    (before.is_empty() && after.is_empty()).then_some(elements)
}
