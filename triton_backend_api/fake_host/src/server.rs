//! What the server says of itself and of its models.

use std::ffi::c_char;

use serde_json::{Value, json};
use triton_backend_api::sys::*;

use crate::message::MessageObject;
use crate::state::{Outcome, Refusal, State, lock, put, symbols, text};
use crate::table::{handle, pointer};

/// Whether it is up, and takes requests.
pub(crate) struct Health {
    pub live: bool,
    pub ready: bool,
}

impl Default for Health {
    fn default() -> Self {
        Self { live: true, ready: true }
    }
}

impl crate::FakeHost {
    /// What the server says of its health; it starts live and ready.
    pub fn set_health(&self, live: bool, ready: bool) {
        lock().health = Health { live, ready };
    }
}

impl State {
    /// A model of this name: its version and configuration. -1 is any version.
    fn model(&mut self, name: &str, version: i64) -> Outcome<(u64, Value)> {
        let fits = |found: u64| version < 0 || found == version as u64;
        let loaded = self
            .models
            .iter()
            .find(|(_, model)| model.name.as_bytes() == name.as_bytes() && fits(model.version));
        if let Some((_, model)) = loaded {
            return Ok((model.version, model.config.clone()));
        }
        if fits(1) {
            self.children.find(name)?;
            return Ok((1, json!({"name": name})));
        }
        let what = format!("the server has no model '{name}' in version {version}");
        Err(Refusal::Error(TRITONSERVER_ERROR_NOT_FOUND, what))
    }

    fn message(&mut self, json: &Value) -> *mut TRITONSERVER_Message {
        pointer(self.messages.insert(MessageObject::new(json)))
    }
}

symbols! {
    fn TRITONSERVER_ServerIsLive(server: *mut TRITONSERVER_Server, live: *mut bool) |state| {
        state.servers.get(handle(server))?;
        put(live, state.health.live)
    }

    fn TRITONSERVER_ServerIsReady(server: *mut TRITONSERVER_Server, ready: *mut bool) |state| {
        state.servers.get(handle(server))?;
        put(ready, state.health.ready)
    }

    fn TRITONSERVER_ServerMetadata(
        server: *mut TRITONSERVER_Server, metadata: *mut *mut TRITONSERVER_Message
    ) |state| {
        state.servers.get(handle(server))?;
        let json = json!({"name": "fake_host", "version": "0", "extensions": ["statistics"]});
        put(metadata, state.message(&json))
    }

    fn TRITONSERVER_ServerModelMetadata(
        server: *mut TRITONSERVER_Server, name: *const c_char, version: i64,
        metadata: *mut *mut TRITONSERVER_Message
    ) |state| {
        state.servers.get(handle(server))?;
        let name = text(name)?;
        let (version, config) = state.model(&name, version)?;
        let json = json!({"name": name, "versions": [version.to_string()], "platform": config["backend"],
            "inputs": config["input"], "outputs": config["output"]});
        put(metadata, state.message(&json))
    }

    fn TRITONSERVER_ServerModelStatistics(
        server: *mut TRITONSERVER_Server, name: *const c_char, version: i64,
        statistics: *mut *mut TRITONSERVER_Message
    ) |state| {
        state.servers.get(handle(server))?;
        let name = text(name)?;
        let (version, _) = state.model(&name, version)?;
        let json = json!({"model_stats": [{"name": name, "version": version.to_string(),
            "execution_count": state.batch_statistics.len()}]});
        put(statistics, state.message(&json))
    }

    fn TRITONSERVER_ServerModelConfig(
        server: *mut TRITONSERVER_Server, name: *const c_char, version: i64, config_version: u32,
        config: *mut *mut TRITONSERVER_Message
    ) |state| {
        state.servers.get(handle(server))?;
        crate::model::check_version(config_version)?;
        let name = text(name)?;
        let json = state.model(&name, version)?.1;
        put(config, state.message(&json))
    }

    fn TRITONSERVER_ServerModelIndex(
        server: *mut TRITONSERVER_Server, flags: u32, index: *mut *mut TRITONSERVER_Message
    ) |state| {
        state.servers.get(handle(server))?;
        let children = state.children.models.keys().map(|name| json!({"name": name, "version": "1", "state": "READY"}));
        // Those under test count as loading until the server has them: the ones that are not ready.
        let loading = state.models.iter().map(|(_, model)| {
            json!({"name": model.name.to_string_lossy(), "version": model.version.to_string(), "state": "LOADING"})
        });
        let only_ready = flags & TRITONSERVER_INDEX_FLAG_READY != 0;
        let json = children.chain(loading.filter(|_| !only_ready)).collect();
        put(index, state.message(&json))
    }
}
