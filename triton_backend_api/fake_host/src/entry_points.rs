//! The entry points of the backend under test.

use triton_backend_api::Backend;
use triton_backend_api::glue::{self, Runner};
use triton_backend_api::sys::*;

type Error = *mut TRITONSERVER_Error;

/// What a backend's library exports, as the server finds it.
#[derive(Clone, Copy)]
#[allow(missing_docs)] // the names are Triton's
pub struct EntryPoints {
    pub initialize: unsafe extern "C" fn(*mut TRITONBACKEND_Backend) -> Error,
    pub finalize: unsafe extern "C" fn(*mut TRITONBACKEND_Backend) -> Error,
    pub get_backend_attribute:
        unsafe extern "C" fn(*mut TRITONBACKEND_Backend, *mut TRITONBACKEND_BackendAttribute) -> Error,
    pub model_initialize: unsafe extern "C" fn(*mut TRITONBACKEND_Model) -> Error,
    pub model_finalize: unsafe extern "C" fn(*mut TRITONBACKEND_Model) -> Error,
    pub instance_initialize: unsafe extern "C" fn(*mut TRITONBACKEND_ModelInstance) -> Error,
    pub instance_finalize: unsafe extern "C" fn(*mut TRITONBACKEND_ModelInstance) -> Error,
    pub instance_ready: unsafe extern "C" fn(*mut TRITONBACKEND_ModelInstance) -> Error,
    pub instance_execute:
        unsafe extern "C" fn(*mut TRITONBACKEND_ModelInstance, *mut *mut TRITONBACKEND_Request, u32) -> Error,
}

impl EntryPoints {
    /// Those that `export_backend!` would export for this author's types. One executable can export one set,
    /// but call as many as it likes.
    pub fn of<R: Runner>() -> Self {
        Self::with_backend::<(), R>()
    }

    /// The same, with a backend of the author's.
    pub fn with_backend<B: Backend, R: Runner>() -> Self {
        Self {
            initialize: initialize::<B>,
            finalize,
            get_backend_attribute: get_backend_attribute::<B, R>,
            model_initialize: model_initialize::<R>,
            model_finalize: model_finalize::<R>,
            instance_initialize: instance_initialize::<R>,
            instance_finalize: instance_finalize::<R>,
            instance_ready: instance_ready::<R>,
            instance_execute: instance_execute::<R>,
        }
    }
}

/// The entry points as C sees them: anything that unwinds out of them aborts.
macro_rules! c_functions {
    ($($name:ident $(<$($type_of:ident: $trait:ident),+>)? ($($arg:ident: $type:ty),*) = $call:expr;)*) => { $(
        #[allow(clippy::extra_unused_type_parameters)] // one of them is the same for every author
        unsafe extern "C" fn $name $(<$($type_of: $trait),+>)?($($arg: $type),*) -> Error {
            // SAFETY: called by this host as the ABI says.
            unsafe { $call }
        }
    )* };
}

c_functions! {
    initialize<B: Backend>(backend: *mut TRITONBACKEND_Backend) = glue::initialize::<B>(backend);
    finalize(backend: *mut TRITONBACKEND_Backend) = glue::finalize(backend);
    get_backend_attribute<B: Backend, R: Runner>(
        _backend: *mut TRITONBACKEND_Backend, attributes: *mut TRITONBACKEND_BackendAttribute
    ) = glue::get_backend_attribute::<B, R::Model>(attributes);
    model_initialize<R: Runner>(model: *mut TRITONBACKEND_Model) = glue::model_initialize::<R::Model>(model);
    model_finalize<R: Runner>(model: *mut TRITONBACKEND_Model) = glue::model_finalize::<R::Model>(model);
    instance_initialize<R: Runner>(instance: *mut TRITONBACKEND_ModelInstance) = glue::instance_initialize::<R>(instance);
    instance_finalize<R: Runner>(instance: *mut TRITONBACKEND_ModelInstance) = glue::instance_finalize::<R>(instance);
    instance_ready<R: Runner>(instance: *mut TRITONBACKEND_ModelInstance) = glue::instance_ready::<R>(instance);
    instance_execute<R: Runner>(
        instance: *mut TRITONBACKEND_ModelInstance, requests: *mut *mut TRITONBACKEND_Request, count: u32
    ) = glue::instance_execute::<R>(instance, requests, count);
}

/// The entry points that this executable exports through `export_backend!`.
#[macro_export]
macro_rules! exported_entry_points {
    () => {{
        use $crate::abi::*;
        unsafe extern "C" {
            fn TRITONBACKEND_Initialize(backend: *mut TRITONBACKEND_Backend) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_Finalize(backend: *mut TRITONBACKEND_Backend) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_GetBackendAttribute(
                backend: *mut TRITONBACKEND_Backend,
                attributes: *mut TRITONBACKEND_BackendAttribute,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ModelInitialize(model: *mut TRITONBACKEND_Model) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ModelFinalize(model: *mut TRITONBACKEND_Model) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ModelInstanceInitialize(
                instance: *mut TRITONBACKEND_ModelInstance,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ModelInstanceFinalize(
                instance: *mut TRITONBACKEND_ModelInstance,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ModelInstanceReady(
                instance: *mut TRITONBACKEND_ModelInstance,
            ) -> *mut TRITONSERVER_Error;
            fn TRITONBACKEND_ModelInstanceExecute(
                instance: *mut TRITONBACKEND_ModelInstance,
                requests: *mut *mut TRITONBACKEND_Request,
                count: u32,
            ) -> *mut TRITONSERVER_Error;
        }
        $crate::EntryPoints {
            initialize: TRITONBACKEND_Initialize,
            finalize: TRITONBACKEND_Finalize,
            get_backend_attribute: TRITONBACKEND_GetBackendAttribute,
            model_initialize: TRITONBACKEND_ModelInitialize,
            model_finalize: TRITONBACKEND_ModelFinalize,
            instance_initialize: TRITONBACKEND_ModelInstanceInitialize,
            instance_finalize: TRITONBACKEND_ModelInstanceFinalize,
            instance_ready: TRITONBACKEND_ModelInstanceReady,
            instance_execute: TRITONBACKEND_ModelInstanceExecute,
        }
    }};
}
