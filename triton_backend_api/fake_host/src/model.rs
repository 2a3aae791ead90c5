//! Models, and when they are unloaded.

use std::ffi::{CString, c_char, c_void};

use serde_json::Value;
use triton_backend_api::sys::*;

use crate::entry_points::EntryPoints;
use crate::instance::StatePointer;
use crate::message::MessageObject;
use crate::state::{CHANGED, Refusal, lock, put, symbols};
use crate::table::{handle, pointer};
use crate::{error, log::LogLine};

pub(crate) struct ModelObject {
    pub entry_points: EntryPoints,
    pub backend: usize,
    pub server: usize,
    pub name: CString,
    pub version: u64,
    pub artifact_type: TRITONBACKEND_ArtifactType,
    pub repository: CString,
    pub config: Value,
    pub auto_complete: bool,
    pub state: StatePointer,
    pub instances: Vec<usize>,
    /// Whether it goes as soon as nothing holds it: the server unloads on the thread that lets go last.
    pub unloading: bool,
    /// Whether unloading has begun.
    pub going: bool,
}

const CONFIG_VERSION: u32 = 1;

pub(crate) fn check_version(version: u32) -> Result<(), Refusal> {
    match version {
        CONFIG_VERSION => Ok(()),
        other => Err(Refusal::Violation(format!("configuration version {other} does not exist"))),
    }
}

symbols! {
    fn TRITONBACKEND_ModelName(model: *mut TRITONBACKEND_Model, name: *mut *const c_char) |state| {
        put(name, state.models.get(handle(model))?.name.as_ptr())
    }

    fn TRITONBACKEND_ModelVersion(model: *mut TRITONBACKEND_Model, version: *mut u64) |state| {
        put(version, state.models.get(handle(model))?.version)
    }

    fn TRITONBACKEND_ModelRepository(
        model: *mut TRITONBACKEND_Model, artifact_type: *mut TRITONBACKEND_ArtifactType,
        location: *mut *const c_char
    ) |state| {
        let object = state.models.get(handle(model))?;
        put(artifact_type, object.artifact_type)?;
        put(location, object.repository.as_ptr())
    }

    fn TRITONBACKEND_ModelConfig(
        model: *mut TRITONBACKEND_Model, config_version: u32, model_config: *mut *mut TRITONSERVER_Message
    ) |state| {
        check_version(config_version)?;
        let message = MessageObject::new(&state.models.get(handle(model))?.config);
        put(model_config, pointer(state.messages.insert(message)))
    }

    fn TRITONBACKEND_ModelAutoCompleteConfig(
        model: *mut TRITONBACKEND_Model, auto_complete_config: *mut bool
    ) |state| {
        put(auto_complete_config, state.models.get(handle(model))?.auto_complete)
    }

    fn TRITONBACKEND_ModelSetConfig(
        model: *mut TRITONBACKEND_Model, config_version: u32, model_config: *mut TRITONSERVER_Message
    ) |state| {
        check_version(config_version)?;
        let config = serde_json::from_slice(&state.messages.get(handle(model_config))?.json)
            .map_err(|e| Refusal::Error(TRITONSERVER_ERROR_INVALID_ARG, format!("no JSON: {e}")))?;
        let object = state.models.get(handle(model))?;
        if !object.auto_complete {
            return Err(Refusal::Violation("a configuration was set where completion is off".to_owned()));
        }
        object.config = config;
        Ok(())
    }

    fn TRITONBACKEND_ModelBackend(model: *mut TRITONBACKEND_Model, backend: *mut *mut TRITONBACKEND_Backend) |state| {
        put(backend, pointer(state.models.get(handle(model))?.backend))
    }

    fn TRITONBACKEND_ModelServer(model: *mut TRITONBACKEND_Model, server: *mut *mut TRITONSERVER_Server) |state| {
        put(server, pointer(state.models.get(handle(model))?.server))
    }

    fn TRITONBACKEND_ModelState(model: *mut TRITONBACKEND_Model, user_state: *mut *mut c_void) |state| {
        put(user_state, state.models.get(handle(model))?.state.0)
    }

    fn TRITONBACKEND_ModelSetState(model: *mut TRITONBACKEND_Model, user_state: *mut c_void) |state| {
        state.models.get(handle(model))?.state = StatePointer(user_state);
        Ok(())
    }
}

/// Unloads a model that is to go and that no request or execution holds any more.
pub(crate) fn unload_if_idle(model: usize) {
    let mut state = lock();
    let busy =
        state.requests.iter().any(|(_, request)| request.common.model == model && !request.release_failed)
            || state.factories.iter().any(|(_, factory)| factory.common.model == model)
            || state.responses.iter().any(|(_, response)| response.origin.common.model == model)
            || state.instances.iter().any(|(_, instance)| instance.model == model && instance.executing);
    let Ok(object) = state.models.get(model) else { return };
    if busy || !object.unloading || std::mem::replace(&mut object.going, true) {
        return;
    }
    let (entry_points, instances) = (object.entry_points, object.instances.clone());
    drop(state);
    unload(model, &entry_points, &instances);
}

/// Finalizes instances and model, also those whose initialisation failed: so does the server.
pub(crate) fn unload(model: usize, entry_points: &EntryPoints, instances: &[usize]) {
    for instance in instances {
        // SAFETY: a handle of this host; the entry point is called as the ABI says.
        finalized(unsafe { (entry_points.instance_finalize)(pointer(*instance)) });
        let _ = lock().instances.end(*instance, "finalized").map(|instance| instance.state.lose());
    }
    // SAFETY: as above; its instances are gone.
    finalized(unsafe { (entry_points.model_finalize)(pointer(model)) });
    let _ = lock().models.end(model, "finalized").map(|model| model.state.lose());
    CHANGED.notify_all();
}

/// The server only logs what finalizing fails with.
pub(crate) fn finalized(error: *mut TRITONSERVER_Error) {
    if let Err(e) = error::take(error) {
        let message = format!("finalizing failed: {e}");
        let line = LogLine { level: TRITONSERVER_LOG_ERROR, file: "server".to_owned(), line: 0, message };
        lock().log.lines.push(line);
    }
}
