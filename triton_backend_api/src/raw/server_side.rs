//! The backend, its memory, and what is asked of instances and of the server.

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};

use super::{Backend, Buffer, Instance, Model, check, out};
use crate::error::Result;
use crate::sys::*;

type Server = *mut TRITONSERVER_Server;
type Message = *mut TRITONSERVER_Message;
type Manager = *mut TRITONBACKEND_MemoryManager;

wrap! {
    /// The settings of the command line, as a JSON message that stays the server's.
    backend_config = TRITONBACKEND_BackendConfig(backend: Backend) -> Message = null_mut();
    /// How the server spreads executions over instances.
    backend_execution_policy = TRITONBACKEND_BackendExecutionPolicy(backend: Backend)
        -> TRITONBACKEND_ExecutionPolicy = 0;
    /// Sets it; the server reads it after Initialize.
    backend_set_execution_policy = TRITONBACKEND_BackendSetExecutionPolicy(backend: Backend,
        policy: TRITONBACKEND_ExecutionPolicy);
    /// The server's memory.
    backend_memory_manager = TRITONBACKEND_BackendMemoryManager(backend: Backend) -> Manager = null_mut();
    /// The backend's own pointer.
    backend_state = TRITONBACKEND_BackendState(backend: Backend) -> *mut c_void = null_mut();
    /// Sets the backend's own pointer.
    backend_set_state = TRITONBACKEND_BackendSetState(backend: Backend, state: *mut c_void);
    /// Tells the server whether instances may be made several at a time.
    attribute_set_parallel_instance_loading = TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
        attributes: *mut TRITONBACKEND_BackendAttribute, enabled: bool);
    /// The backend of a model.
    model_backend = TRITONBACKEND_ModelBackend(model: Model) -> Backend = null_mut();

    /// Frees a block; type and id are those it was allocated with.
    memory_free = TRITONBACKEND_MemoryManagerFree(manager: Manager, buffer: *mut c_void,
        memory_type: TRITONSERVER_MemoryType, memory_type_id: i64);

    /// The host policy, as a JSON message that stays the server's.
    instance_host_policy = TRITONBACKEND_ModelInstanceHostPolicy(instance: Instance) -> Message = null_mut();
    /// Whether the server never executes the instance.
    instance_is_passive = TRITONBACKEND_ModelInstanceIsPassive(instance: Instance) -> bool = false;
    /// How many optimization profiles are named.
    instance_profile_count = TRITONBACKEND_ModelInstanceProfileCount(instance: Instance) -> u32 = 0;
    /// The name of an optimization profile.
    instance_profile_name = TRITONBACKEND_ModelInstanceProfileName(instance: Instance, index: u32)
        -> *const c_char = null();
    /// How many secondary devices are named.
    instance_secondary_device_count = TRITONBACKEND_ModelInstanceSecondaryDeviceCount(instance: Instance) -> u32 = 0;

    /// Whether the server is up.
    server_is_live = TRITONSERVER_ServerIsLive(server: Server) -> bool = false;
    /// Whether the server takes requests.
    server_is_ready = TRITONSERVER_ServerIsReady(server: Server) -> bool = false;
    /// What the server is, as a JSON message that the caller owns.
    server_metadata = TRITONSERVER_ServerMetadata(server: Server) -> Message = null_mut();
    /// What a model is, as a JSON message that the caller owns.
    server_model_metadata = TRITONSERVER_ServerModelMetadata(server: Server, name: *const c_char, version: i64)
        -> Message = null_mut();
    /// What a model did, as a JSON message that the caller owns.
    server_model_statistics = TRITONSERVER_ServerModelStatistics(server: Server, name: *const c_char, version: i64)
        -> Message = null_mut();
    /// A model's configuration, as a JSON message that the caller owns.
    server_model_config = TRITONSERVER_ServerModelConfig(server: Server, name: *const c_char, version: i64,
        config_version: u32) -> Message = null_mut();
    /// The models of the repositories, as a JSON message that the caller owns.
    server_model_index = TRITONSERVER_ServerModelIndex(server: Server, flags: u32) -> Message = null_mut();
}

/// Kind and place of what the backend was loaded from.
///
/// # Safety
/// See the module.
pub unsafe fn backend_artifacts(backend: Backend) -> Result<(TRITONBACKEND_ArtifactType, *const c_char)> {
    let (mut kind, mut location) = (0, null());
    // SAFETY: the module's promise; both places are live.
    unsafe { check(TRITONBACKEND_BackendArtifacts(backend, &mut kind, &mut location)) }?;
    Ok((kind, location))
}

/// A block of the server's memory, of exactly that kind.
///
/// # Safety
/// See the module.
pub unsafe fn memory_allocate(
    manager: Manager,
    byte_size: usize,
    memory_type: TRITONSERVER_MemoryType,
    memory_type_id: i64,
) -> Result<Buffer> {
    let mut base = null_mut();
    // SAFETY: the module's promise; the place is live.
    unsafe {
        let size = byte_size as u64;
        check(TRITONBACKEND_MemoryManagerAllocate(manager, &mut base, memory_type, memory_type_id, size))
    }?;
    Ok(Buffer { base, byte_size, memory_type, memory_type_id })
}

/// Kind and number of a secondary device; the kind belongs to the instance.
///
/// # Safety
/// See the module.
pub unsafe fn instance_secondary_device(instance: Instance, index: u32) -> Result<(*const c_char, i64)> {
    let (mut kind, mut id) = (null(), 0);
    // SAFETY: the module's promise; both places are live.
    unsafe {
        check(TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(instance, index, &mut kind, &mut id))
    }?;
    Ok((kind, id))
}
