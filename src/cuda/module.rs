//! The kernels' machine code on one GPU.

use std::ffi::CString;
use std::sync::Arc;

use triton_backend_api::log;

use super::context::Context;
use super::driver::{CUfunction, CUmodule, cuda};
use super::error::{CudaError, Result};
use super::images;
use super::kernels::Kernel;

/// The compute capability that the embedded PTX is made for.
const PTX_CAPABILITY: u32 = 70;

/// Which of the embedded images the driver gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The machine code for the GPU; the PTX where there is none, or where the driver refuses it.
    Any,
    /// The PTX, which the driver compiles.
    Ptx,
}

/// The loaded kernels.
pub struct Kernels {
    /// What they were loaded from: `machine code for sm_86`, or `PTX` and why, unless it was asked for.
    pub image: String,
    module: CUmodule,
    functions: Vec<CUfunction>,
    context: Arc<Context>,
}

// SAFETY: handles of the driver's, which locks what it must.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

impl Kernels {
    /// Loads them for a GPU of this compute capability. The context is current.
    pub fn load(context: &Arc<Context>, gpu: &str, capability: u32, code: Code) -> Result<Self> {
        if capability < PTX_CAPABILITY {
            let text = |capability: u32| format!("{}.{}", capability / 10, capability % 10);
            return Err(CudaError::NoDevice(format!(
                "GPU {} ({gpu}) has compute capability {}; accepted is {} or later",
                context.id(),
                text(capability),
                text(PTX_CAPABILITY)
            )));
        }
        if code == Code::Ptx {
            return Self::of_image(context, "PTX".to_owned(), images::PTX);
        }
        // Machine code runs on later minor versions of its own major version.
        let fits = |cubin: &&(u32, &[u8])| cubin.0 / 10 == capability / 10 && cubin.0 <= capability;
        let cubin = images::CUBINS.iter().filter(fits).max_by_key(|cubin| cubin.0);
        let load = |(made_for, image): &(u32, &[u8])| {
            Self::of_image(context, format!("machine code for sm_{made_for}"), image)
        };
        let refused = match cubin.map(load) {
            Some(Ok(kernels)) => return Ok(kernels),
            Some(Err(error)) if error.is_sticky() => return Err(error),
            Some(Err(error)) => error.to_string(),
            None => "there is no machine code for this GPU".to_owned(),
        };
        log!(Info, "GPU {} ({gpu}): the driver compiles the kernels' PTX: {refused}", context.id());
        Self::of_image(context, format!("PTX: {refused}"), images::PTX)
    }

    /// `image` is machine code, or PTX that ends with a NUL.
    fn of_image(context: &Arc<Context>, name: String, image: &[u8]) -> Result<Self> {
        const STEP: &str = "loading the kernels";
        let mut module = std::ptr::null_mut();
        // SAFETY: the place is live; machine code tells its own size, and text ends with a NUL.
        unsafe { cuda!(STEP, cuModuleLoadData(&mut module, image.as_ptr().cast())) }?;
        let mut kernels = Self { image: name, module, functions: Vec::new(), context: context.clone() };
        for kernel in Kernel::ALL {
            let name = CString::new(kernel.name()).unwrap_or_default();
            let mut function = std::ptr::null_mut();
            // SAFETY: the place is live, the name ends with a NUL.
            unsafe { cuda!(kernel.name(), cuModuleGetFunction(&mut function, module, name.as_ptr())) }?;
            kernels.functions.push(function);
        }
        Ok(kernels)
    }

    /// The function of a kernel.
    pub fn function(&self, kernel: Kernel) -> CUfunction {
        self.functions[kernel as usize]
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: loaded once, unloaded once; nothing runs any more.
            let _ = unsafe { cuda!("unloading the kernels", cuModuleUnload(self.module)) };
        }
    }
}
