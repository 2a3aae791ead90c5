//! The author's model, and what it is told when it is loaded.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::backend::{Backend, BackendState};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::instance::InstanceKind;
use crate::memory::MemoryManager;
use crate::server::Server;
use crate::{message, raw, sys};

/// One loaded version of a model, shared by its instances.
pub trait Model: Send + Sync + Sized + 'static {
    /// Reads configuration and parameters. An error refuses the load, and its text is what the operator reads.
    fn load(cx: &ModelContext) -> Result<Self>;

    /// Fills in what a configuration leaves out, before [`Model::load`]: the whole completed configuration, or
    /// `None` where there is nothing to complete. Not called where the server runs with completion switched off.
    fn auto_complete(config: &ModelConfig) -> Result<Option<Value>> {
        let _ = config;
        Ok(None)
    }

    /// Which kind of instance the server should make where a configuration names none; empty leaves it to the server.
    fn preferred_instances() -> &'static [InstanceKind] {
        &[]
    }
}

/// What a model is told when it is loaded.
pub struct ModelContext {
    name: String,
    version: u64,
    repository: PathBuf,
    config: ModelConfig,
    server: Server,
    memory: MemoryManager,
    backend: Option<Arc<dyn Any + Send + Sync>>,
}

impl ModelContext {
    /// # Safety
    /// `model` is a model that the server is initialising.
    pub(crate) unsafe fn new(model: *mut sys::TRITONBACKEND_Model) -> Result<Self> {
        // SAFETY: a live model; the server's strings are copied at once.
        unsafe {
            let name = raw::text(raw::model_name(model)?);
            let (kind, location) = raw::model_repository(model)?;
            if kind != sys::TRITONBACKEND_ARTIFACT_FILESYSTEM {
                return Err(Error::unsupported(format!(
                    "model '{name}' comes as artifact type {kind}; only the file system is accepted"
                )));
            }
            let repository = PathBuf::from(raw::text(location));
            let server = Server::new(raw::model_server(model)?, &name)?;
            let version = raw::model_version(model)?;
            let raw_backend = raw::model_backend(model)?;
            let (memory, backend) = (MemoryManager::of(raw_backend)?, BackendState::of(raw_backend)?);
            Ok(Self { name, version, repository, config: read_config(model)?, server, memory, backend })
        }
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version being loaded.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The model's folder in the repository, which holds `config.pbtxt` and a folder a version.
    pub fn repository(&self) -> &Path {
        &self.repository
    }

    /// The folder of the version being loaded.
    pub fn version_directory(&self) -> PathBuf {
        self.repository.join(self.version.to_string())
    }

    /// The path that a parameter names: `$$TRITON_MODEL_DIRECTORY` at its beginning stands for
    /// [`Self::repository`], as it does for the Python backend, and a relative path lies below it too.
    pub fn path(&self, parameter: &str) -> PathBuf {
        let below =
            parameter.strip_prefix("$$TRITON_MODEL_DIRECTORY").map(|rest| rest.trim_start_matches('/'));
        self.repository.join(below.unwrap_or(parameter))
    }

    /// The configuration, completed.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The server's memory: pinned, a GPU's, or a host's.
    pub fn memory(&self) -> MemoryManager {
        self.memory
    }

    /// The author's backend, which all its models share. Errors: `Internal` where [`export_backend!`](crate::export_backend!)
    /// was not told that it is a `B`.
    pub fn backend<B: Backend>(&self) -> Result<Arc<B>> {
        self.backend.clone().and_then(|backend| backend.downcast().ok()).ok_or_else(|| {
            let name = std::any::type_name::<B>();
            Error::internal(format!("model '{}': export_backend! names no backend = {name}", self.name))
        })
    }
}

/// Lets the author complete the configuration where the server allows it.
///
/// # Safety
/// `model` is a model that the server is initialising.
pub(crate) unsafe fn auto_complete<M: Model>(model: *mut sys::TRITONBACKEND_Model) -> Result<()> {
    // SAFETY: a live model.
    let (allowed, config) = unsafe { (raw::model_auto_complete(model)?, read_config(model)?) };
    if !allowed {
        return Ok(());
    }
    let Some(completed) = M::auto_complete(&config)? else { return Ok(()) };
    // SAFETY: a live model; the message is ours and deleted once.
    unsafe {
        let message = raw::message_new(&completed.to_string())?;
        let set = raw::model_set_config(model, 1, message);
        let _ = raw::message_delete(message);
        set
    }
}

unsafe fn read_config(model: *mut sys::TRITONBACKEND_Model) -> Result<ModelConfig> {
    // SAFETY: a live model; the message is ours.
    unsafe { message::take(raw::model_config(model, 1)?, "model configuration") }.map(ModelConfig::from)
}
