//! The entry points of the backend under test.

use triton_backend_api::glue::{self, Runner};
use triton_backend_api::sys::*;

type Error = *mut TRITONSERVER_Error;

/// What a backend's library exports, as the server finds it.
#[derive(Clone, Copy)]
#[allow(missing_docs)] // the names are Triton's
pub struct EntryPoints {
    pub initialize: unsafe extern "C" fn(*mut TRITONBACKEND_Backend) -> Error,
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
        Self {
            initialize: initialize::<R>,
            get_backend_attribute: get_backend_attribute::<R>,
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
    ($($name:ident($($arg:ident: $type:ty),*) = $call:expr;)*) => { $(
        #[allow(clippy::extra_unused_type_parameters)] // two of them are the same for every author
        unsafe extern "C" fn $name<R: Runner>($($arg: $type),*) -> Error {
            // SAFETY: called by this host as the ABI says.
            unsafe { $call }
        }
    )* };
}

c_functions! {
    initialize(backend: *mut TRITONBACKEND_Backend) = glue::initialize(backend);
    get_backend_attribute(_backend: *mut TRITONBACKEND_Backend, attributes: *mut TRITONBACKEND_BackendAttribute)
        = glue::get_backend_attribute::<R::Model>(attributes);
    model_initialize(model: *mut TRITONBACKEND_Model) = glue::model_initialize::<R::Model>(model);
    model_finalize(model: *mut TRITONBACKEND_Model) = glue::model_finalize::<R::Model>(model);
    instance_initialize(instance: *mut TRITONBACKEND_ModelInstance) = glue::instance_initialize::<R>(instance);
    instance_finalize(instance: *mut TRITONBACKEND_ModelInstance) = glue::instance_finalize::<R>(instance);
    instance_ready(instance: *mut TRITONBACKEND_ModelInstance) = glue::instance_ready(instance);
    instance_execute(
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
