//! The bodies of the `TRITONBACKEND_*` entry points, and the macro that exports them.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::backend::{Backend, BackendContext, BackendState, InstanceGroup};
use crate::error::{Error, Result};
use crate::glue::boundary::boundary;
use crate::glue::pin::keep_mapped;
use crate::glue::runner::{Profile, Runner};
use crate::instance::InstanceContext;
use crate::model::{Model, ModelContext, auto_complete};
use crate::{raw, sys};

/// What the server keeps for a model.
struct ModelState<M> {
    model: Arc<M>,
    profile: Arc<Profile>,
}

/// What the server keeps for an instance.
struct InstanceState<R: Runner> {
    runner: R,
    model: Arc<R::Model>,
    profile: Arc<Profile>,
}

/// `TRITONBACKEND_Initialize`: refuses a server whose API this backend cannot work with, and makes the author's backend.
///
/// # Safety
/// Called by the server as the ABI says.
pub unsafe fn initialize<B: Backend>(
    backend: *mut sys::TRITONBACKEND_Backend,
) -> *mut sys::TRITONSERVER_Error {
    boundary("initialize", || {
        // SAFETY: called by the server with the backend it initialises.
        let cx = unsafe { BackendContext::new(backend) }?;
        keep_mapped();
        let state = Box::new(BackendState(Arc::new(B::initialize(&cx)?)));
        // SAFETY: the server keeps the pointer until `finalize` takes it back.
        unsafe { set_state(state, |state| raw::backend_set_state(backend, state)) }
    })
}

/// `TRITONBACKEND_Finalize`.
///
/// # Safety
/// Called by the server as the ABI says.
pub unsafe fn finalize(backend: *mut sys::TRITONBACKEND_Backend) -> *mut sys::TRITONSERVER_Error {
    boundary("finalize", || {
        // SAFETY: set by `initialize` or, where that failed, never: then it is null.
        unsafe {
            let state = raw::backend_state(backend)?;
            // Freed whether the server forgets the pointer or not: it does not ask again.
            let forgotten = raw::backend_set_state(backend, std::ptr::null_mut());
            drop(take_state::<BackendState>(state));
            forgotten
        }
    })
}

/// `TRITONBACKEND_GetBackendAttribute`: the instances that the author prefers, and how they may be made.
///
/// # Safety
/// Called by the server as the ABI says.
pub unsafe fn get_backend_attribute<B: Backend, M: Model>(
    attributes: *mut sys::TRITONBACKEND_BackendAttribute,
) -> *mut sys::TRITONSERVER_Error {
    boundary("get_backend_attribute", || {
        let mut groups = B::preferred_groups();
        if groups.is_empty() {
            groups.extend(M::preferred_instances().iter().map(|kind| InstanceGroup::from(*kind)));
        }
        for group in &groups {
            let (kind, devices) = (group.kind.to_raw(), group.device_ids.as_slice());
            let first = if devices.is_empty() { std::ptr::null() } else { devices.as_ptr() };
            let count = devices.len() as u64;
            // SAFETY: called by the server with its attributes; the numbers are live for their count.
            unsafe {
                raw::attribute_add_preferred_instance_group(attributes, kind, group.count, first, count)
            }?;
        }
        if B::parallel_instance_loading() {
            // SAFETY: as above.
            unsafe { raw::attribute_set_parallel_instance_loading(attributes, true) }?;
        }
        Ok(())
    })
}

/// `TRITONBACKEND_ModelInitialize`.
///
/// # Safety
/// Called by the server as the ABI says.
pub unsafe fn model_initialize<M: Model>(
    model: *mut sys::TRITONBACKEND_Model,
) -> *mut sys::TRITONSERVER_Error {
    boundary("model_initialize", || {
        // SAFETY: called by the server with the model it initialises.
        let cx = unsafe {
            auto_complete::<M>(model)?;
            ModelContext::new(model)?
        };
        let profile = Arc::new(Profile {
            name: cx.name().to_owned(),
            max_batch_size: cx.config().max_batch_size(),
            decoupled: cx.config().is_decoupled(),
        });
        let state = Box::new(ModelState { model: Arc::new(M::load(&cx)?), profile });
        // SAFETY: the server keeps the pointer until `model_finalize` takes it back.
        unsafe { set_state(state, |state| raw::model_set_state(model, state)) }
    })
}

/// `TRITONBACKEND_ModelFinalize`.
///
/// # Safety
/// Called by the server as the ABI says.
pub unsafe fn model_finalize<M: Model>(model: *mut sys::TRITONBACKEND_Model) -> *mut sys::TRITONSERVER_Error {
    boundary("model_finalize", || {
        // SAFETY: set by `model_initialize` or, where that failed, never: then it is null.
        unsafe {
            let state = raw::model_state(model)?;
            // Freed whether the server forgets the pointer or not: it does not ask again.
            let forgotten = raw::model_set_state(model, std::ptr::null_mut());
            drop(take_state::<ModelState<M>>(state));
            forgotten
        }
    })
}

/// `TRITONBACKEND_ModelInstanceInitialize`.
///
/// # Safety
/// Called by the server as the ABI says.
pub unsafe fn instance_initialize<R: Runner>(
    instance: *mut sys::TRITONBACKEND_ModelInstance,
) -> *mut sys::TRITONSERVER_Error {
    boundary("instance_initialize", || {
        // SAFETY: called by the server with the instance it initialises; its model is initialised.
        let (cx, state) = unsafe {
            let model = raw::instance_model(instance)?;
            (InstanceContext::new(instance)?, raw::model_state(model)?.cast::<ModelState<R::Model>>())
        };
        // SAFETY: set by `model_initialize`, and there until `model_finalize`, which comes after all instances'.
        let state = unsafe { state.as_ref() }.ok_or_else(|| Error::internal("the model is not loaded"))?;
        let model = state.model.clone();
        let runner = R::create(&model, &cx)?;
        let state = Box::new(InstanceState { runner, model, profile: state.profile.clone() });
        // SAFETY: the server keeps the pointer until `instance_finalize` takes it back.
        unsafe { set_state(state, |state| raw::instance_set_state(instance, state)) }
    })
}

/// `TRITONBACKEND_ModelInstanceFinalize`.
///
/// # Safety
/// Called by the server as the ABI says.
pub unsafe fn instance_finalize<R: Runner>(
    instance: *mut sys::TRITONBACKEND_ModelInstance,
) -> *mut sys::TRITONSERVER_Error {
    boundary("instance_finalize", || {
        // SAFETY: set by `instance_initialize` or, where that failed, never: then it is null.
        unsafe {
            let state = raw::instance_state(instance)?;
            // Freed whether the server forgets the pointer or not: it does not ask again.
            let forgotten = raw::instance_set_state(instance, std::ptr::null_mut());
            drop(take_state::<InstanceState<R>>(state));
            forgotten
        }
    })
}

/// `TRITONBACKEND_ModelInstanceExecute`.
///
/// # Safety
/// Called by the server as the ABI says.
pub unsafe fn instance_execute<R: Runner>(
    instance: *mut sys::TRITONBACKEND_ModelInstance,
    requests: *mut *mut sys::TRITONBACKEND_Request,
    count: u32,
) -> *mut sys::TRITONSERVER_Error {
    boundary("instance_execute", || {
        // SAFETY: the server passes `count` live requests and an initialised instance.
        let (state, requests) = unsafe {
            let state = raw::instance_state(instance)?.cast::<InstanceState<R>>();
            let requests = match count {
                0 => &[],
                _ => std::slice::from_raw_parts(requests.cast_const(), count as usize),
            };
            (state.as_ref(), requests)
        };
        let state = state.ok_or_else(|| Error::internal("the instance is not initialised"))?;
        let instance = NonNull::new(instance).ok_or_else(|| Error::internal("no instance"))?;
        let requests: Option<Vec<_>> = requests.iter().map(|request| NonNull::new(*request)).collect();
        let requests = requests.ok_or_else(|| Error::internal("the server passed a null request"))?;
        // SAFETY: what the server passed.
        unsafe { state.runner.execute(&state.model, &state.profile, instance, &requests) }
    })
}

/// `TRITONBACKEND_ModelInstanceReady`: an instance that is initialised is ready, unless its author says otherwise.
///
/// # Safety
/// Called by the server as the ABI says.
pub unsafe fn instance_ready<R: Runner>(
    instance: *mut sys::TRITONBACKEND_ModelInstance,
) -> *mut sys::TRITONSERVER_Error {
    boundary("instance_ready", || {
        // SAFETY: called by the server with its instance; the state was set by `instance_initialize`, or never.
        match unsafe { raw::instance_state(instance)?.cast::<InstanceState<R>>().as_ref() } {
            None => Err(Error::unavailable("the instance is not initialised")),
            Some(state) => state.runner.ready(),
        }
    })
}

/// Hands a box to the server, or drops it where the server does not take it.
unsafe fn set_state<T>(state: Box<T>, set: impl FnOnce(*mut std::ffi::c_void) -> Result<()>) -> Result<()> {
    let raw = Box::into_raw(state);
    set(raw.cast()).inspect_err(|_| {
        // SAFETY: made above, and not taken by the server.
        drop(unsafe { Box::from_raw(raw) });
    })
}

/// # Safety
/// `state` is null or a box of a `T` that was handed to the server and is taken back for the first time.
unsafe fn take_state<T>(state: *mut std::ffi::c_void) -> Option<Box<T>> {
    // SAFETY: see above.
    (!state.is_null()).then(|| unsafe { Box::from_raw(state.cast::<T>()) })
}

/// Exports a backend: `export_backend!(MyModel, MyInstance)` for an [`Instance`](crate::Instance),
/// `export_backend!(MyModel, concurrent MyInstance)` for a [`ConcurrentInstance`](crate::ConcurrentInstance).
///
/// A state that all models share is named last: `export_backend!(MyModel, MyInstance, backend = MyBackend)`, a
/// [`Backend`](crate::Backend).
///
/// It defines the `TRITONBACKEND_*` functions, so a library holds one of it.
#[macro_export]
macro_rules! export_backend {
    ($model:ty, concurrent $instance:ty) => {
        $crate::export_backend!(@entry_points (), $model, $crate::glue::Concurrent<$instance>);
    };
    ($model:ty, $instance:ty) => {
        $crate::export_backend!(@entry_points (), $model, $crate::glue::Sequential<$instance>);
    };
    ($model:ty, concurrent $instance:ty, backend = $backend:ty) => {
        $crate::export_backend!(@entry_points $backend, $model, $crate::glue::Concurrent<$instance>);
    };
    ($model:ty, $instance:ty, backend = $backend:ty) => {
        $crate::export_backend!(@entry_points $backend, $model, $crate::glue::Sequential<$instance>);
    };
    (@entry_points $backend:ty, $model:ty, $runner:ty) => {
        // A block of its own, without imports or aliases: nothing here can meet the author's names.
        const _: () = {
            $crate::export_backend! { @functions
                TRITONBACKEND_Initialize(backend: TRITONBACKEND_Backend) = initialize::<$backend>(backend);
                TRITONBACKEND_Finalize(backend: TRITONBACKEND_Backend) = finalize(backend);
                TRITONBACKEND_ModelInitialize(model: TRITONBACKEND_Model) = model_initialize::<$model>(model);
                TRITONBACKEND_ModelFinalize(model: TRITONBACKEND_Model) = model_finalize::<$model>(model);
                TRITONBACKEND_ModelInstanceInitialize(instance: TRITONBACKEND_ModelInstance)
                    = instance_initialize::<$runner>(instance);
                TRITONBACKEND_ModelInstanceFinalize(instance: TRITONBACKEND_ModelInstance)
                    = instance_finalize::<$runner>(instance);
                TRITONBACKEND_ModelInstanceReady(instance: TRITONBACKEND_ModelInstance)
                    = instance_ready::<$runner>(instance);
            }

            /// # Safety
            /// For the server to call, as its ABI says.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn TRITONBACKEND_GetBackendAttribute(
                _backend: *mut $crate::sys::TRITONBACKEND_Backend,
                attributes: *mut $crate::sys::TRITONBACKEND_BackendAttribute,
            ) -> *mut $crate::sys::TRITONSERVER_Error {
                // SAFETY: called by the server as its ABI says.
                unsafe { $crate::glue::get_backend_attribute::<$backend, $model>(attributes) }
            }

            /// # Safety
            /// For the server to call, as its ABI says.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceExecute(
                instance: *mut $crate::sys::TRITONBACKEND_ModelInstance,
                requests: *mut *mut $crate::sys::TRITONBACKEND_Request,
                count: u32,
            ) -> *mut $crate::sys::TRITONSERVER_Error {
                // SAFETY: called by the server as its ABI says.
                unsafe { $crate::glue::instance_execute::<$runner>(instance, requests, count) }
            }
        };
    };
    (@functions $($name:ident($arg:ident: $type:ident) = $function:ident $(::<$runner:ty>)? ($passed:ident);)*) => { $(
        /// # Safety
        /// For the server to call, as its ABI says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($arg: *mut $crate::sys::$type) -> *mut $crate::sys::TRITONSERVER_Error {
            // SAFETY: called by the server as its ABI says.
            unsafe { $crate::glue::$function $(::<$runner>)? ($passed) }
        }
    )* };
}
