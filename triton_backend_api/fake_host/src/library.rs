//! A backend's library, in whatever language it is written.

use std::path::Path;
use std::ptr::null_mut;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use triton_backend_api::sys::*;

use crate::entry_points::EntryPoints;
use crate::error::HostError;

type Error = *mut TRITONSERVER_Error;

impl EntryPoints {
    /// Those of the library at `path`, which stays loaded until the process ends. What it leaves out does nothing, as
    /// for the server; ModelInstanceExecute alone must be there.
    ///
    /// The library finds the `TRITON*` symbols in this executable, which must be linked with `-Wl,--export-dynamic`.
    pub fn open(path: &Path) -> Result<Self, HostError> {
        let failed = |e: libloading::Error| {
            HostError::new(TRITONSERVER_ERROR_INVALID_ARG, format!("{}: {e}", path.display()))
        };
        // Without a slash the loader would look in the system's folders, and not in this one.
        let file = path
            .canonicalize()
            .map_err(|e| HostError::new(TRITONSERVER_ERROR_NOT_FOUND, format!("{}: {e}", path.display())))?;
        // SAFETY: loading runs the library's initialisers, which is what the caller asks for.
        let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL) }.map_err(failed)?;
        /// The symbol, or what does nothing in its stead.
        macro_rules! optional {
            ($name:literal, $fallback:expr) => {
                // SAFETY: a library that exports this name has the ABI's function there.
                unsafe { library.get($name) }.map_or($fallback, |symbol| *symbol)
            };
        }
        let entry_points = Self {
            initialize: optional!(b"TRITONBACKEND_Initialize", nothing),
            finalize: optional!(b"TRITONBACKEND_Finalize", nothing),
            get_backend_attribute: optional!(b"TRITONBACKEND_GetBackendAttribute", no_attributes),
            model_initialize: optional!(b"TRITONBACKEND_ModelInitialize", nothing),
            model_finalize: optional!(b"TRITONBACKEND_ModelFinalize", nothing),
            instance_initialize: optional!(b"TRITONBACKEND_ModelInstanceInitialize", nothing),
            instance_finalize: optional!(b"TRITONBACKEND_ModelInstanceFinalize", nothing),
            instance_ready: optional!(b"TRITONBACKEND_ModelInstanceReady", nothing),
            // SAFETY: as above.
            instance_execute: unsafe { library.get(b"TRITONBACKEND_ModelInstanceExecute") }
                .map(|symbol| *symbol)
                .map_err(failed)?,
        };
        std::mem::forget(library); // the functions are used without it from here on
        Ok(entry_points)
    }
}

unsafe extern "C" fn nothing<T>(_: *mut T) -> Error {
    null_mut()
}

unsafe extern "C" fn no_attributes(
    _: *mut TRITONBACKEND_Backend,
    _: *mut TRITONBACKEND_BackendAttribute,
) -> Error {
    null_mut()
}
