//! The author's backend: what all its models share, and what it is told when it is loaded.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::instance::InstanceKind;
use crate::memory::MemoryManager;
use crate::{message, raw, sys};

/// What all models of a backend share. Most backends need none: [`export_backend!`](crate::export_backend!) takes `()`
/// where none is named.
///
/// The server makes it when it loads the first model of the backend, before that model, and lets go of it after the last
/// one. Models get it from [`ModelContext::backend`](crate::ModelContext::backend).
pub trait Backend: Send + Sync + Sized + 'static {
    /// Reads the command line's settings. An error refuses every model of the backend, with its text.
    fn initialize(cx: &BackendContext) -> Result<Self>;

    /// The instances to make where a model's configuration names none, best first. Empty leaves it to
    /// [`Model::preferred_instances`](crate::Model::preferred_instances).
    fn preferred_groups() -> Vec<InstanceGroup> {
        Vec::new()
    }

    /// Whether the server may make several instances of a model at a time: worth it where
    /// [`Instance::create`](crate::Instance::create) takes long and calls nothing that minds.
    fn parallel_instance_loading() -> bool {
        false
    }
}

impl Backend for () {
    fn initialize(_: &BackendContext) -> Result<Self> {
        Ok(())
    }
}

/// Instances that a backend prefers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceGroup {
    /// Where they run.
    pub kind: InstanceKind,
    /// How many on each device; 0 leaves it to the server.
    pub count: u64,
    /// On which GPUs; empty leaves it to the server.
    pub device_ids: Vec<u64>,
}

impl From<InstanceKind> for InstanceGroup {
    /// One instance on each device.
    fn from(kind: InstanceKind) -> Self {
        Self { kind, count: 1, device_ids: Vec::new() }
    }
}

/// How the server spreads executions over a model's instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExecutionPolicy {
    /// One execution an instance at a time: the server's default.
    Blocking,
    /// One execution a device at a time, whichever of its instances it is.
    DeviceBlocking,
    /// A policy this crate does not know, as the server numbers it.
    Unknown(u32),
}

impl ExecutionPolicy {
    fn from_raw(raw: u32) -> Self {
        match raw {
            sys::TRITONBACKEND_EXECUTION_BLOCKING => Self::Blocking,
            sys::TRITONBACKEND_EXECUTION_DEVICE_BLOCKING => Self::DeviceBlocking,
            other => Self::Unknown(other),
        }
    }

    fn to_raw(self) -> u32 {
        match self {
            Self::Blocking => sys::TRITONBACKEND_EXECUTION_BLOCKING,
            Self::DeviceBlocking => sys::TRITONBACKEND_EXECUTION_DEVICE_BLOCKING,
            Self::Unknown(other) => other,
        }
    }
}

/// What the backend was loaded from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Artifacts {
    /// This folder, which holds the library and what came with it.
    Folder(PathBuf),
    /// A kind of place this crate does not know, as the server numbers it, and where it says that is.
    Unknown(u32, String),
}

/// What a backend is told when it is loaded.
pub struct BackendContext {
    raw: *mut sys::TRITONBACKEND_Backend,
    name: String,
    api_version: (u32, u32),
}

impl BackendContext {
    /// Refuses a server whose API this crate cannot work with.
    ///
    /// # Safety
    /// `raw` is a backend that the server is initialising, and outlives this.
    pub(crate) unsafe fn new(raw: *mut sys::TRITONBACKEND_Backend) -> Result<Self> {
        // SAFETY: a live backend; the name is copied at once.
        let ((major, minor), name) = unsafe { (raw::api_version()?, raw::text(raw::backend_name(raw)?)) };
        let (our_major, our_minor) = (sys::TRITON_ABI_BACKEND_MAJOR, sys::TRITON_ABI_BACKEND_MINOR);
        if major != our_major || minor < our_minor {
            return Err(Error::unsupported(format!(
                "backend '{name}': the server's backend API is {major}.{minor}; accepted is {our_major}.{our_minor} \
                 or a later {our_major}.x"
            )));
        }
        Ok(Self { raw, name, api_version: (major, minor) })
    }

    /// The name the server knows the backend by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server's backend API, major and minor: 1.17 or a later 1.x.
    pub fn api_version(&self) -> (u32, u32) {
        self.api_version
    }

    /// The backend's configuration as the server has it: `{"cmdline": {..}}`.
    pub fn config(&self) -> Result<Value> {
        // SAFETY: a live backend; the message stays the server's.
        unsafe { message::read(raw::backend_config(self.raw)?, "configuration of the backend") }
    }

    /// The settings of `--backend-config=NAME,KEY=VALUE`, and the server's own such as `backend-directory`. A value that is
    /// no string is given as its JSON.
    pub fn settings(&self) -> Result<BTreeMap<String, String>> {
        let config = self.config()?;
        let settings = config.get("cmdline").and_then(Value::as_object).into_iter().flatten();
        Ok(settings.map(|(key, value)| (key.clone(), crate::config::text(value))).collect())
    }

    /// What the backend was loaded from.
    pub fn artifacts(&self) -> Result<Artifacts> {
        // SAFETY: a live backend; the location is copied at once.
        let (kind, location) = unsafe {
            let (kind, location) = raw::backend_artifacts(self.raw)?;
            (kind, raw::text(location))
        };
        Ok(match kind {
            sys::TRITONBACKEND_ARTIFACT_FILESYSTEM => Artifacts::Folder(location.into()),
            other => Artifacts::Unknown(other, location),
        })
    }

    /// How the server will spread executions over instances.
    pub fn execution_policy(&self) -> Result<ExecutionPolicy> {
        // SAFETY: a live backend.
        unsafe { raw::backend_execution_policy(self.raw) }.map(ExecutionPolicy::from_raw)
    }

    /// Chooses how. The server reads it once, after [`Backend::initialize`].
    pub fn set_execution_policy(&self, policy: ExecutionPolicy) -> Result<()> {
        // SAFETY: a live backend that is being initialised.
        unsafe { raw::backend_set_execution_policy(self.raw, policy.to_raw()) }
    }

    /// The server's memory.
    pub fn memory(&self) -> Result<MemoryManager> {
        // SAFETY: a live backend.
        unsafe { MemoryManager::of(self.raw) }
    }
}

/// What the server keeps for a backend.
pub(crate) struct BackendState(pub Arc<dyn Any + Send + Sync>);

impl BackendState {
    /// The author's backend that `backend` holds, where it is initialised.
    ///
    /// # Safety
    /// `backend` is a live backend whose state is ours.
    pub unsafe fn of(backend: *mut sys::TRITONBACKEND_Backend) -> Result<Option<Arc<dyn Any + Send + Sync>>> {
        // SAFETY: set by Initialize, and there until Finalize, which comes after all models'; null before.
        unsafe { Ok(raw::backend_state(backend)?.cast::<Self>().as_ref().map(|state| state.0.clone())) }
    }
}
