//! The backend as the server sees it.

use std::ffi::{CString, c_char, c_void};
use std::path::PathBuf;

use serde_json::{Value, json};
use triton_backend_api::sys::*;

use crate::entry_points::EntryPoints;
use crate::error::{HostError, take};
use crate::host::FakeHost;
use crate::instance::StatePointer;
use crate::loaded::{LoadedModel, ModelSpec};
use crate::message::MessageObject;
use crate::model::finalized;
use crate::state::{State, lock, put, symbols};
use crate::table::{handle, pointer};
use crate::test_request::c_string;

pub(crate) struct BackendObject {
    name: CString,
    artifact_type: TRITONBACKEND_ArtifactType,
    location: CString,
    /// The message that holds its configuration; the server's.
    config: usize,
    policy: TRITONBACKEND_ExecutionPolicy,
    state: StatePointer,
}

/// A backend to be loaded.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // what the ABI tells of a backend
pub struct BackendSpec {
    pub name: String,
    pub artifact_type: TRITONBACKEND_ArtifactType,
    pub location: PathBuf,
    /// `{"cmdline": {..}}`
    pub config: Value,
}

impl Default for BackendSpec {
    fn default() -> Self {
        Self {
            name: "under_test".to_owned(),
            artifact_type: TRITONBACKEND_ARTIFACT_FILESYSTEM,
            location: PathBuf::from("/backends/under_test"),
            config: json!({}),
        }
    }
}

/// What a backend wishes for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendAttributes {
    /// The instances it prefers, best first.
    pub groups: Vec<PreferredGroup>,
    /// Whether instances may be made several at a time.
    pub parallel_instance_loading: bool,
}

/// Instances that a backend prefers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the ABI's terms
pub struct PreferredGroup {
    pub kind: TRITONSERVER_InstanceGroupKind,
    pub count: u64,
    pub device_ids: Vec<u64>,
}

/// A loaded backend. Dropping it finalizes it.
pub struct LoadedBackend<'h> {
    host: &'h FakeHost,
    handle: usize,
    entry_points: EntryPoints,
}

impl State {
    pub fn new_backend(&mut self, spec: BackendSpec) -> usize {
        let config = self.messages.insert(MessageObject::lent(&spec.config));
        self.backends.insert(BackendObject {
            name: c_string(&spec.name),
            artifact_type: spec.artifact_type,
            location: c_string(&spec.location.to_string_lossy()),
            config,
            policy: TRITONBACKEND_EXECUTION_BLOCKING,
            state: StatePointer(std::ptr::null_mut()),
        })
    }
}

impl FakeHost {
    /// Loads a backend as the server does: one that fails to initialize is finalized too.
    pub fn load_backend(
        &self,
        entry_points: EntryPoints,
        spec: BackendSpec,
    ) -> Result<LoadedBackend<'_>, HostError> {
        let handle = lock().new_backend(spec);
        let loaded = LoadedBackend { host: self, handle, entry_points };
        // SAFETY: a handle of this host; called as the ABI says.
        take(unsafe { (entry_points.initialize)(pointer(handle)) })?;
        Ok(loaded)
    }

    /// Calls the backend's Initialize, then its Finalize.
    pub fn initialize(&self, entry_points: &EntryPoints) -> Result<(), HostError> {
        self.load_backend(*entry_points, BackendSpec::default()).map(drop)
    }

    /// The kinds of instance that the backend prefers, as it tells them.
    pub fn backend_attributes(
        &self,
        entry_points: &EntryPoints,
    ) -> Result<Vec<TRITONSERVER_InstanceGroupKind>, HostError> {
        let attributes = attributes(entry_points, self.backend())?;
        Ok(attributes.groups.into_iter().map(|group| group.kind).collect())
    }
}

impl LoadedBackend<'_> {
    /// Loads a model of this backend.
    pub fn load(&self, spec: ModelSpec) -> Result<LoadedModel<'_>, HostError> {
        self.host.load_of(self.handle, self.entry_points, spec)
    }

    /// What it wishes for.
    pub fn attributes(&self) -> Result<BackendAttributes, HostError> {
        attributes(&self.entry_points, self.handle)
    }

    /// Its execution policy, as the ABI numbers it.
    pub fn execution_policy(&self) -> Option<TRITONBACKEND_ExecutionPolicy> {
        lock().backends.get(self.handle).ok().map(|backend| backend.policy)
    }
}

impl Drop for LoadedBackend<'_> {
    fn drop(&mut self) {
        // SAFETY: a handle of this host; its models are gone, since they borrow it.
        finalized(unsafe { (self.entry_points.finalize)(pointer(self.handle)) });
        let _ = lock().backends.end(self.handle, "finalized").map(|backend| backend.state.lose());
    }
}

fn attributes(entry_points: &EntryPoints, backend: usize) -> Result<BackendAttributes, HostError> {
    let attributes = lock().attributes.insert(BackendAttributes::default());
    // SAFETY: handles of this host; called as the ABI says.
    let result = take(unsafe { (entry_points.get_backend_attribute)(pointer(backend), pointer(attributes)) });
    let read = lock().attributes.end(attributes, "read").unwrap_or_default();
    result.map(|()| read)
}

symbols! {
    fn TRITONBACKEND_ApiVersion(major: *mut u32, minor: *mut u32) |state| {
        put(major, state.api_version.0)?;
        put(minor, state.api_version.1)
    }

    fn TRITONBACKEND_BackendName(backend: *mut TRITONBACKEND_Backend, name: *mut *const c_char) |state| {
        put(name, state.backends.get(handle(backend))?.name.as_ptr())
    }

    fn TRITONBACKEND_BackendConfig(
        backend: *mut TRITONBACKEND_Backend, config: *mut *mut TRITONSERVER_Message
    ) |state| {
        put(config, pointer(state.backends.get(handle(backend))?.config))
    }

    fn TRITONBACKEND_BackendArtifacts(
        backend: *mut TRITONBACKEND_Backend, artifact_type: *mut TRITONBACKEND_ArtifactType,
        location: *mut *const c_char
    ) |state| {
        let object = state.backends.get(handle(backend))?;
        put(artifact_type, object.artifact_type)?;
        put(location, object.location.as_ptr())
    }

    fn TRITONBACKEND_BackendExecutionPolicy(
        backend: *mut TRITONBACKEND_Backend, policy: *mut TRITONBACKEND_ExecutionPolicy
    ) |state| {
        put(policy, state.backends.get(handle(backend))?.policy)
    }

    fn TRITONBACKEND_BackendSetExecutionPolicy(
        backend: *mut TRITONBACKEND_Backend, policy: TRITONBACKEND_ExecutionPolicy
    ) |state| {
        state.backends.get(handle(backend))?.policy = policy;
        Ok(())
    }

    fn TRITONBACKEND_BackendMemoryManager(
        backend: *mut TRITONBACKEND_Backend, manager: *mut *mut TRITONBACKEND_MemoryManager
    ) |state| {
        state.backends.get(handle(backend))?;
        put(manager, pointer(state.memory.manager()))
    }

    fn TRITONBACKEND_BackendState(backend: *mut TRITONBACKEND_Backend, user_state: *mut *mut c_void) |state| {
        put(user_state, state.backends.get(handle(backend))?.state.0)
    }

    fn TRITONBACKEND_BackendSetState(backend: *mut TRITONBACKEND_Backend, user_state: *mut c_void) |state| {
        state.backends.get(handle(backend))?.state = StatePointer(user_state);
        Ok(())
    }

    fn TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
        backend_attributes: *mut TRITONBACKEND_BackendAttribute, kind: TRITONSERVER_InstanceGroupKind,
        count: u64, device_ids: *const u64, id_count: u64
    ) |state| {
        let device_ids = match id_count {
            0 => Vec::new(),
            _ => std::slice::from_raw_parts(device_ids, id_count as usize).to_vec(),
        };
        let group = PreferredGroup { kind, count, device_ids };
        state.attributes.get(handle(backend_attributes))?.groups.push(group);
        Ok(())
    }

    fn TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
        backend_attributes: *mut TRITONBACKEND_BackendAttribute, enabled: bool
    ) |state| {
        state.attributes.get(handle(backend_attributes))?.parallel_instance_loading = enabled;
        Ok(())
    }
}
