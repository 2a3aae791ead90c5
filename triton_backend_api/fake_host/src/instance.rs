//! Model instances.

use std::ffi::{CString, c_char, c_void};

use triton_backend_api::sys::*;

use crate::answer::check_times;
use crate::state::{put, symbols};
use crate::table::{handle, pointer};

pub(crate) struct InstanceObject {
    pub model: usize,
    pub name: CString,
    pub kind: TRITONSERVER_InstanceGroupKind,
    pub device_id: i32,
    pub state: StatePointer,
    /// Whether Execute is running.
    pub executing: bool,
}

/// The pointer that a backend keeps at a model or an instance.
#[derive(Clone, Copy)]
pub(crate) struct StatePointer(pub *mut c_void);

// SAFETY: kept and given back, never followed.
unsafe impl Send for StatePointer {}

/// The statistics of one execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchStatistics {
    /// How many samples it was.
    pub batch_size: u64,
    /// Start, compute start, compute end, end.
    pub times: [u64; 4],
}

symbols! {
    fn TRITONBACKEND_ModelInstanceName(
        instance: *mut TRITONBACKEND_ModelInstance, name: *mut *const c_char
    ) |state| {
        put(name, state.instances.get(handle(instance))?.name.as_ptr())
    }

    fn TRITONBACKEND_ModelInstanceKind(
        instance: *mut TRITONBACKEND_ModelInstance, kind: *mut TRITONSERVER_InstanceGroupKind
    ) |state| {
        put(kind, state.instances.get(handle(instance))?.kind)
    }

    fn TRITONBACKEND_ModelInstanceDeviceId(
        instance: *mut TRITONBACKEND_ModelInstance, device_id: *mut i32
    ) |state| {
        put(device_id, state.instances.get(handle(instance))?.device_id)
    }

    fn TRITONBACKEND_ModelInstanceModel(
        instance: *mut TRITONBACKEND_ModelInstance, model: *mut *mut TRITONBACKEND_Model
    ) |state| {
        put(model, pointer(state.instances.get(handle(instance))?.model))
    }

    fn TRITONBACKEND_ModelInstanceState(
        instance: *mut TRITONBACKEND_ModelInstance, user_state: *mut *mut c_void
    ) |state| {
        put(user_state, state.instances.get(handle(instance))?.state.0)
    }

    fn TRITONBACKEND_ModelInstanceSetState(
        instance: *mut TRITONBACKEND_ModelInstance, user_state: *mut c_void
    ) |state| {
        state.instances.get(handle(instance))?.state = StatePointer(user_state);
        Ok(())
    }

    fn TRITONBACKEND_ModelInstanceReportBatchStatistics(
        instance: *mut TRITONBACKEND_ModelInstance, batch_size: u64, exec_start_ns: u64,
        compute_start_ns: u64, compute_end_ns: u64, exec_end_ns: u64
    ) |state| {
        state.instances.get(handle(instance))?;
        let times = [exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns];
        check_times(&times, 0)?;
        state.batch_statistics.push(BatchStatistics { batch_size, times });
        Ok(())
    }
}
