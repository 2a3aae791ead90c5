//! Model instances.

use std::ffi::{CString, c_char, c_void};

use serde_json::{Value, json};
use triton_backend_api::sys::*;

use crate::answer::check_times;
use crate::message::MessageObject;
use crate::state::{State, out_of_bounds, put, symbols};
use crate::table::{handle, pointer};
use crate::test_request::c_string;

pub(crate) struct InstanceObject {
    pub model: usize,
    pub name: CString,
    pub kind: TRITONSERVER_InstanceGroupKind,
    pub device_id: i32,
    /// The message that holds its host policy; the server's.
    pub host_policy: usize,
    pub passive: bool,
    pub profiles: Vec<CString>,
    pub secondary_devices: Vec<(CString, i64)>,
    pub state: StatePointer,
    /// Whether Execute is running.
    pub executing: bool,
}

impl State {
    /// An instance of a model, with what the first instance group of the configuration says of all of them.
    pub fn new_instance(
        &mut self,
        model: usize,
        name: &str,
        (kind, device_id): (TRITONSERVER_InstanceGroupKind, i32),
        config: &Value,
    ) -> usize {
        let group = &config["instance_group"][0];
        let list = |key: &str| group[key].as_array().cloned().unwrap_or_default();
        let policy = match (group["host_policy"].as_str(), kind) {
            (Some(policy), _) => policy.to_owned(),
            (None, TRITONSERVER_INSTANCEGROUPKIND_GPU) => format!("gpu_{device_id}"),
            (None, TRITONSERVER_INSTANCEGROUPKIND_MODEL) => "model".to_owned(),
            (None, _) => "cpu".to_owned(),
        };
        let settings = self.host_policies.get(&policy).cloned().unwrap_or_else(|| json!({}));
        let host_policy = self.messages.insert(MessageObject::lent(&json!({policy: settings})));
        let device = |device: &Value| {
            (c_string(device["kind"].as_str().unwrap_or("")), device["device_id"].as_i64().unwrap_or(0))
        };
        self.instances.insert(InstanceObject {
            model,
            name: c_string(name),
            kind,
            device_id,
            host_policy,
            passive: group["passive"].as_bool().unwrap_or(false),
            profiles: list("profile").iter().filter_map(Value::as_str).map(c_string).collect(),
            secondary_devices: list("secondary_devices").iter().map(device).collect(),
            state: StatePointer(std::ptr::null_mut()),
            executing: false,
        })
    }
}

impl crate::FakeHost {
    /// Sets a host policy, as the command line would; `settings` is a JSON object.
    pub fn set_host_policy(&self, name: &str, settings: Value) {
        crate::state::lock().host_policies.insert(name.to_owned(), settings);
    }
}

/// The pointer that a backend keeps at a model or an instance.
#[derive(Clone, Copy)]
pub(crate) struct StatePointer(pub *mut c_void);

// SAFETY: kept and given back, never followed.
unsafe impl Send for StatePointer {}

impl StatePointer {
    /// Remembers a state that the backend could not be asked to free, or would not, for as long as the process lives: a
    /// leak checker is not to report what a test has arranged. Tests count what the author's code frees.
    pub fn lose(self) {
        static LOST: std::sync::Mutex<Vec<StatePointer>> = std::sync::Mutex::new(Vec::new());
        if !self.0.is_null() {
            LOST.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(self);
        }
    }
}

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

    fn TRITONBACKEND_ModelInstanceHostPolicy(
        instance: *mut TRITONBACKEND_ModelInstance, host_policy: *mut *mut TRITONSERVER_Message
    ) |state| {
        put(host_policy, pointer(state.instances.get(handle(instance))?.host_policy))
    }

    fn TRITONBACKEND_ModelInstanceIsPassive(
        instance: *mut TRITONBACKEND_ModelInstance, is_passive: *mut bool
    ) |state| {
        put(is_passive, state.instances.get(handle(instance))?.passive)
    }

    fn TRITONBACKEND_ModelInstanceProfileCount(
        instance: *mut TRITONBACKEND_ModelInstance, count: *mut u32
    ) |state| {
        put(count, state.instances.get(handle(instance))?.profiles.len() as u32)
    }

    fn TRITONBACKEND_ModelInstanceProfileName(
        instance: *mut TRITONBACKEND_ModelInstance, index: u32, profile_name: *mut *const c_char
    ) |state| {
        let profiles = &state.instances.get(handle(instance))?.profiles;
        match profiles.get(index as usize) {
            Some(profile) => put(profile_name, profile.as_ptr()),
            None => out_of_bounds("profile", index, profiles.len()),
        }
    }

    fn TRITONBACKEND_ModelInstanceSecondaryDeviceCount(
        instance: *mut TRITONBACKEND_ModelInstance, count: *mut u32
    ) |state| {
        put(count, state.instances.get(handle(instance))?.secondary_devices.len() as u32)
    }

    fn TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(
        instance: *mut TRITONBACKEND_ModelInstance, index: u32, kind: *mut *const c_char, id: *mut i64
    ) |state| {
        let devices = &state.instances.get(handle(instance))?.secondary_devices;
        match devices.get(index as usize) {
            Some((name, number)) => {
                put(kind, name.as_ptr())?;
                put(id, *number)
            }
            None => out_of_bounds("secondary device", index, devices.len()),
        }
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
