//! The backend as the server sees it.

use std::ffi::{CString, c_char};

use triton_backend_api::sys::*;

use crate::state::{put, symbols};
use crate::table::handle;

pub(crate) struct BackendObject {
    pub name: CString,
}

symbols! {
    fn TRITONBACKEND_ApiVersion(major: *mut u32, minor: *mut u32) |state| {
        put(major, state.api_version.0)?;
        put(minor, state.api_version.1)
    }

    fn TRITONBACKEND_BackendName(backend: *mut TRITONBACKEND_Backend, name: *mut *const c_char) |state| {
        put(name, state.backends.get(handle(backend))?.name.as_ptr())
    }

    fn TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
        backend_attributes: *mut TRITONBACKEND_BackendAttribute, kind: TRITONSERVER_InstanceGroupKind,
        _count: u64, _device_ids: *const u64, _id_count: u64
    ) |state| {
        state.attributes.get(handle(backend_attributes))?.push(kind);
        Ok(())
    }
}
