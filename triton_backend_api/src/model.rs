//! The author's model, and what it is told when it is loaded.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::instance::InstanceKind;
use crate::server::Server;
use crate::{raw, sys};

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
            Ok(Self { name, version, repository, config: read_config(model)?, server })
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
    // SAFETY: a live model; the message is ours, its text is read before it is deleted, once.
    unsafe {
        let message = raw::model_config(model, 1)?;
        let config = raw::message_json(message).and_then(|(base, size)| {
            let bytes = if size == 0 { &[] } else { std::slice::from_raw_parts(base.cast::<u8>(), size) };
            ModelConfig::from_json(&String::from_utf8_lossy(bytes))
        });
        let _ = raw::message_delete(message);
        config
    }
}
