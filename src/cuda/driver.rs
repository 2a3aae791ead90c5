//! The driver's library: whether it is there, and its functions.
//!
//! cudarc knows the types. The library is opened and its functions are bound here, once: cudarc's own search takes what is called
//! `libcuda.so` first, which may be a toolkit's stub, and panics where something is missing. Results are plain numbers, since a
//! driver newer than the bindings answers with errors that they do not know.

use std::error::Error;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys;
use libloading::Library;
pub(super) use sys::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream};

use super::error::{CudaError, Result};

/// The oldest driver that is accepted: it has all functions, and loads PTX of ISA 7.8.
const OLDEST: c_int = 11080;

macro_rules! functions {
    ($($name:ident($($type:ty),*);)*) => {
        /// The functions of the driver's library that are used here, under their own names.
        #[allow(non_snake_case)]
        pub(super) struct Functions {
            $(pub $name: unsafe extern "C" fn($($type),*) -> u32,)*
            /// Where they are: open for as long as they are there.
            _library: Library,
        }

        impl Functions {
            fn bind(library: Library) -> Result<Self> {
                Ok(Self {
                    $(
                        // SAFETY: the driver's function of that name has this type: a test compares it with cudarc's.
                        $name: *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }
                            .map_err(|_| CudaError::no_driver(concat!("it has no ", stringify!($name))))?,
                    )*
                    _library: library,
                })
            }
        }

        #[cfg(test)]
        #[test]
        fn functions_have_the_types_that_cudarc_declares() {
            $(let _: unsafe fn($($type),*) -> sys::CUresult = sys::$name;)*
        }
    };
}

functions! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuGetErrorName(sys::CUresult, *mut *const c_char);
    cuGetErrorString(sys::CUresult, *mut *const c_char);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut CUdevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, CUdevice);
    cuDeviceGetAttribute(*mut c_int, sys::CUdevice_attribute, CUdevice);
    cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease_v2(CUdevice);
    cuCtxPushCurrent_v2(CUcontext);
    cuCtxPopCurrent_v2(*mut CUcontext);
    cuThreadExchangeStreamCaptureMode(*mut sys::CUstreamCaptureMode);
    cuModuleLoadData(*mut CUmodule, *const c_void);
    cuModuleUnload(CUmodule);
    cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemFree_v2(CUdeviceptr);
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    cuMemFreeHost(*mut c_void);
    cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
    cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
    cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, usize, CUstream);
    cuMemsetD8Async(CUdeviceptr, u8, usize, CUstream);
    cuStreamCreate(*mut CUstream, c_uint);
    cuStreamDestroy_v2(CUstream);
    cuStreamSynchronize(CUstream);
    cuEventCreate(*mut CUevent, c_uint);
    cuEventDestroy_v2(CUevent);
    cuEventRecord(CUevent, CUstream);
    cuEventSynchronize(CUevent);
    cuEventElapsedTime(*mut f32, CUevent, CUevent);
    cuLaunchKernel(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void,
        *mut *mut c_void
    );
}

/// Calls a function of the driver's: `cuda!("the step", cuMemFree_v2(pointer))`. What fails names step and call.
///
/// An unsafe operation: what the function asks for is the caller's to keep.
macro_rules! cuda {
    ($step:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $crate::cuda::driver::functions().and_then(|functions| {
            $crate::cuda::driver::check($step, stringify!($name), (functions.$name)($($argument),*))
        })
    };
}
pub(super) use cuda;

/// The driver's functions, if there is a driver. One that is installed later is found then.
pub(super) fn functions() -> Result<&'static Functions> {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    if let Some(functions) = FUNCTIONS.get() {
        return Ok(functions);
    }
    let functions = Functions::bind(open()?)?;
    Ok(FUNCTIONS.get_or_init(|| functions))
}

/// The driver's library. `libcuda.so.1` is the driver, which libtorch opens too; `libcuda.so` may be a stub that a CUDA toolkit has for
/// linkers, so it comes second.
fn open() -> Result<Library> {
    // SAFETY: opens the driver's library, as every program that uses the GPU does.
    let open = |name: &str| unsafe { Library::new(name) };
    open("libcuda.so.1").or_else(|missing| open("libcuda.so").map_err(|_| missing)).map_err(|error| {
        let linker = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        CudaError::no_driver(format!("libcuda.so.1 cannot be loaded: {linker}"))
    })
}

/// Starts the driver, which may be started already, and looks whether it is new enough.
pub(super) fn start() -> Result<()> {
    const STEP: &str = "no usable NVIDIA driver";
    // Without a GPU that it may use, or as a stub, the driver refuses to start: then there is none that can be used.
    // SAFETY: there are no flags.
    unsafe { cuda!(STEP, cuInit(0)) }.map_err(|error| match error {
        CudaError::Driver { call, text, .. } => CudaError::no_driver(format!("{call} failed: {text}")),
        other => other,
    })?;
    let mut version = 0;
    // SAFETY: the place is live.
    unsafe { cuda!(STEP, cuDriverGetVersion(&mut version)) }?;
    if version < OLDEST {
        let text = |version: c_int| format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
        let (found, accepted) = (text(version), text(OLDEST));
        return Err(CudaError::no_driver(format!("it is made for {found}; accepted is {accepted} or later")));
    }
    Ok(())
}

/// The outcome of a call.
pub(super) fn check(step: &'static str, call: &'static str, code: u32) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let text = functions().map_or_else(|e| e.to_string(), |functions| explain(functions, code));
    Err(CudaError::Driver { step, call, code, text })
}

/// The driver's name of an error, and what it says of it.
fn explain(functions: &Functions, code: u32) -> String {
    type Lookup = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
    let look_up = |function: unsafe extern "C" fn(sys::CUresult, *mut *const c_char) -> u32| {
        // SAFETY: the same function, taking the number as the number that C has it.
        let function: Lookup = unsafe { std::mem::transmute(function) };
        let mut text = std::ptr::null();
        // SAFETY: the place is live; any number may be asked for.
        let found = unsafe { function(code, &mut text) } == 0 && !text.is_null();
        // SAFETY: a constant of the driver's.
        found.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
    };
    match (look_up(functions.cuGetErrorName), look_up(functions.cuGetErrorString)) {
        (Some(name), Some(text)) => format!("{name}, {text}"),
        _ => format!("CUDA error {code}"),
    }
}

/// How many GPUs there are.
pub(super) fn device_count() -> Result<usize> {
    let mut count = 0;
    // SAFETY: the place is live.
    unsafe { cuda!("counting the GPUs", cuDeviceGetCount(&mut count)) }?;
    Ok(usize::try_from(count).unwrap_or(0))
}
