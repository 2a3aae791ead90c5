//! Typed views of GPU memory: an address and a length that the CPU cannot follow.

use std::fmt;
use std::marker::PhantomData;

use crate::data_type::Element;

/// Elements in the memory of a GPU, to be read there while `'a` lasts.
///
/// It can only be handed on, to a kernel or a copy of the CUDA driver's or runtime's; nothing of it is read here.
/// Work that reads it has to be done before `'a` ends: the server knows nothing of streams.
#[derive(Clone, Copy)]
pub struct DeviceSlice<'a, T> {
    base: *const T,
    len: usize,
    device: i64,
    owner: PhantomData<&'a [T]>,
}

/// Elements in the memory of a GPU, to be written there while `'a` lasts. See [`DeviceSlice`].
pub struct DeviceSliceMut<'a, T> {
    base: *mut T,
    len: usize,
    device: i64,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: an address that is never followed here; a GPU's memory is tied to no thread.
unsafe impl<T: Element> Send for DeviceSlice<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for DeviceSlice<'_, T> {}
// SAFETY: as above, and there is one of it.
unsafe impl<T: Element> Send for DeviceSliceMut<'_, T> {}

impl<T: Element> DeviceSlice<'_, T> {
    /// # Safety
    /// `len` elements lie at `base` in the memory of that GPU, aligned, and stay unchanged while `'a` lasts.
    pub(crate) unsafe fn new(base: *const T, len: usize, device: i64) -> Self {
        Self { base, len, device, owner: PhantomData }
    }

    /// The GPU's number.
    pub fn device(&self) -> i64 {
        self.device
    }

    /// The address on that GPU. It is aligned for `T`.
    pub fn as_ptr(&self) -> *const T {
        self.base
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T: Element> DeviceSliceMut<'_, T> {
    /// # Safety
    /// `len` elements fit at `base` in the memory of that GPU, aligned, and are the caller's alone while `'a` lasts.
    pub(crate) unsafe fn new(base: *mut T, len: usize, device: i64) -> Self {
        Self { base, len, device, owner: PhantomData }
    }

    /// The GPU's number.
    pub fn device(&self) -> i64 {
        self.device
    }

    /// The address on that GPU. It is aligned for `T`.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.base
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T: Element> fmt::Debug for DeviceSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at {:?} of GPU {}", self.len, T::DATA_TYPE, self.base, self.device)
    }
}

impl<T: Element> fmt::Debug for DeviceSliceMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at {:?} of GPU {}", self.len, T::DATA_TYPE, self.base, self.device)
    }
}
