//! A GPU's primary context, which Triton and libtorch share with this backend.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;

use cudarc::driver::sys::CUdevice_attribute::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as MULTIPROCESSORS,
};
use cudarc::driver::sys::CUstreamCaptureMode::{self, CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED};

use super::driver::{CUcontext, CUdevice, cuda, device_count};
use super::error::{CudaError, Result};

/// The primary context of a GPU, kept for as long as this lives.
pub struct Context {
    device: CUdevice,
    id: i32,
    raw: CUcontext,
}

// SAFETY: a context may be current on any threads at once; the driver locks what it must.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The primary context of the GPU with this number.
    pub fn retain(id: i32) -> Result<Self> {
        const STEP: &str = "opening the GPU";
        let count = device_count()?;
        if usize::try_from(id).is_ok_and(|id| id >= count) || id < 0 {
            return Err(CudaError::NoDevice(format!("GPU {id}; this machine has {count}, numbered from 0")));
        }
        let (mut device, mut raw) = (0, std::ptr::null_mut());
        // SAFETY: the places are live.
        unsafe {
            cuda!(STEP, cuDeviceGet(&mut device, id))?;
            cuda!(STEP, cuDevicePrimaryCtxRetain(&mut raw, device))?;
        }
        Ok(Self { device, id, raw })
    }

    /// The GPU's number.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// The driver's handle.
    pub(super) fn raw(&self) -> CUcontext {
        self.raw
    }

    /// Makes it the calling thread's current context, until what this returns is dropped.
    ///
    /// Meanwhile other libraries of the process may capture their streams as graphs: the thread's calls, which wait for streams
    /// and allocate, touch no stream that is captured, and are neither refused then nor do they end the capture.
    pub fn enter(&self) -> Result<Current<'_>> {
        const STEP: &str = "entering the context";
        // SAFETY: a context that is retained.
        unsafe { cuda!(STEP, cuCtxPushCurrent_v2(self.raw)) }?;
        let mut current = Current { mode: None, _context: PhantomData };
        let mut mode = RELAXED;
        // SAFETY: the place is live.
        unsafe { cuda!(STEP, cuThreadExchangeStreamCaptureMode(&mut mode)) }?;
        current.mode = Some(mode);
        Ok(current)
    }

    /// The GPU's name, and its compute capability: 86 for 8.6.
    pub fn description(&self) -> Result<(String, u32)> {
        const STEP: &str = "describing the GPU";
        let (mut name, mut major, mut minor) = ([0 as c_char; 256], 0, 0);
        // SAFETY: the places are live, the name's for as many characters as said.
        unsafe {
            cuda!(STEP, cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, self.device))?;
            cuda!(STEP, cuDeviceGetAttribute(&mut major, MAJOR, self.device))?;
            cuda!(STEP, cuDeviceGetAttribute(&mut minor, MINOR, self.device))?;
        }
        // SAFETY: the driver ends the name with a NUL within the room it has.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        Ok((name, (major * 10 + minor).unsigned_abs()))
    }

    /// How many multiprocessors the GPU has.
    pub fn multiprocessors(&self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: the place is live.
        unsafe {
            cuda!("describing the GPU", cuDeviceGetAttribute(&mut count, MULTIPROCESSORS, self.device))
        }?;
        Ok(count.unsigned_abs())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, released once. What fails here cannot be mended.
        let _ = unsafe { cuda!("closing the GPU", cuDevicePrimaryCtxRelease_v2(self.device)) };
    }
}

/// While this lives the context is the calling thread's current one; then the one before it is again.
pub struct Current<'c> {
    /// The thread's mode before.
    mode: Option<CUstreamCaptureMode>,
    /// Tied to the thread.
    _context: PhantomData<(&'c Context, *const ())>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        const STEP: &str = "leaving the context";
        if let Some(mode) = &mut self.mode {
            // SAFETY: the place is live.
            let _ = unsafe { cuda!(STEP, cuThreadExchangeStreamCaptureMode(mode)) };
        }
        let mut popped = std::ptr::null_mut();
        // SAFETY: pushed by this thread, which has popped since then what it pushed since then.
        let _ = unsafe { cuda!(STEP, cuCtxPopCurrent_v2(&mut popped)) };
    }
}
