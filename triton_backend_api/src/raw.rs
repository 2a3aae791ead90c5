//! One function a call of the ABI: C errors become [`Result`], out-parameters become return values.
//!
//! Nothing is owned and nothing is checked here beyond the call's own error; the safe types above do both.
//! Every function is unsafe for the same reason, so it is said once: the pointers passed must be live objects
//! of the server that loaded this backend, used as the ABI allows at that moment.

pub mod late;

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

use crate::error::{Error, ErrorCode, Result};
use crate::raw::late::late;
use crate::sys::*;

/// Takes over an error object returned by the server: `Ok` for null, else its code and text; deletes it.
///
/// # Safety
/// `error` is null or an error object that the caller owns.
pub unsafe fn check(error: *mut TRITONSERVER_Error) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: a live error object that is ours, see above.
    let found = unsafe { peek(error) };
    // SAFETY: ours, and not used after this.
    unsafe { TRITONSERVER_ErrorDelete(error) };
    Err(found)
}

/// Reads an error object without taking it over.
///
/// # Safety
/// `error` is a live error object.
pub unsafe fn peek(error: *mut TRITONSERVER_Error) -> Error {
    // SAFETY: a live error object, see above; the text is copied before the object can go.
    unsafe {
        Error::new(ErrorCode::from_raw(TRITONSERVER_ErrorCode(error)), text(TRITONSERVER_ErrorMessage(error)))
    }
}

/// A C string of the server, copied. Null is the empty string; bytes that are no UTF-8 are replaced.
///
/// # Safety
/// `string` is null or a live NUL-terminated string.
pub unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: a live NUL-terminated string, see above.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}

/// Calls `call` with a place for one out-parameter.
///
/// # Safety
/// `call` returns null or an error object that the caller owns.
unsafe fn out<T>(mut value: T, call: impl FnOnce(*mut T) -> *mut TRITONSERVER_Error) -> Result<T> {
    // SAFETY: the ABI hands over the error object it returns.
    unsafe { check(call(&mut value)) }?;
    Ok(value)
}

/// Defines wrappers of calls with at most one out-parameter, which stands last in the ABI.
macro_rules! wrap {
    ($($(#[$doc:meta])* $name:ident = $symbol:ident($($arg:ident: $type:ty),*) $(-> $out:ty = $init:expr)?;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// See the module.
        pub unsafe fn $name($($arg: $type),*) -> Result<wrap!(@out $($out)?)> {
            // SAFETY: the caller's promise is that of the module.
            unsafe { wrap!(@call $symbol($($arg),*) $($init)?) }
        }
    )* };
    (@out) => { () };
    (@out $out:ty) => { $out };
    (@call $symbol:ident($($arg:ident),*)) => { check($symbol($($arg),*)) };
    (@call $symbol:ident($($arg:ident),*) $init:expr) => { out($init, |value| $symbol($($arg,)* value)) };
}

mod metrics;
mod server_side;
mod statistics;

pub use metrics::*;
pub use server_side::*;
pub use statistics::*;

type Backend = *mut TRITONBACKEND_Backend;
type Model = *mut TRITONBACKEND_Model;
type Instance = *mut TRITONBACKEND_ModelInstance;
type Request = *mut TRITONBACKEND_Request;
type Response = *mut TRITONBACKEND_Response;
type Factory = *mut TRITONBACKEND_ResponseFactory;
type Inference = *mut TRITONSERVER_InferenceRequest;
type Inferred = *mut TRITONSERVER_InferenceResponse;

wrap! {
    /// The name the server knows this backend by.
    backend_name = TRITONBACKEND_BackendName(backend: Backend) -> *const c_char = null();
    /// Tells the server which kind of instance to make where the configuration names none.
    attribute_add_preferred_instance_group = TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
        attributes: *mut TRITONBACKEND_BackendAttribute, kind: TRITONSERVER_InstanceGroupKind, count: u64,
        device_ids: *const u64, id_count: u64);

    /// The model's name.
    model_name = TRITONBACKEND_ModelName(model: Model) -> *const c_char = null();
    /// The version being loaded.
    model_version = TRITONBACKEND_ModelVersion(model: Model) -> u64 = 0;
    /// The configuration as a JSON message, which the caller owns.
    model_config = TRITONBACKEND_ModelConfig(model: Model, version: u32) -> *mut TRITONSERVER_Message = null_mut();
    /// Whether the backend may fill in what the configuration leaves out.
    model_auto_complete = TRITONBACKEND_ModelAutoCompleteConfig(model: Model) -> bool = false;
    /// Replaces the configuration; the message stays the caller's.
    model_set_config = TRITONBACKEND_ModelSetConfig(model: Model, version: u32, config: *mut TRITONSERVER_Message);
    /// The server that loads the model.
    model_server = TRITONBACKEND_ModelServer(model: Model) -> *mut TRITONSERVER_Server = null_mut();
    /// The backend's own pointer.
    model_state = TRITONBACKEND_ModelState(model: Model) -> *mut c_void = null_mut();
    /// Sets the backend's own pointer.
    model_set_state = TRITONBACKEND_ModelSetState(model: Model, state: *mut c_void);

    /// The instance's name.
    instance_name = TRITONBACKEND_ModelInstanceName(instance: Instance) -> *const c_char = null();
    /// The instance's kind.
    instance_kind = TRITONBACKEND_ModelInstanceKind(instance: Instance) -> TRITONSERVER_InstanceGroupKind = 0;
    /// The instance's device.
    instance_device_id = TRITONBACKEND_ModelInstanceDeviceId(instance: Instance) -> i32 = 0;
    /// The instance's model.
    instance_model = TRITONBACKEND_ModelInstanceModel(instance: Instance) -> Model = null_mut();
    /// The backend's own pointer.
    instance_state = TRITONBACKEND_ModelInstanceState(instance: Instance) -> *mut c_void = null_mut();
    /// Sets the backend's own pointer.
    instance_set_state = TRITONBACKEND_ModelInstanceSetState(instance: Instance, state: *mut c_void);
    /// Statistics of one request.
    report_statistics = TRITONBACKEND_ModelInstanceReportStatistics(instance: Instance, request: Request,
        success: bool, exec_start: u64, compute_start: u64, compute_end: u64, exec_end: u64);
    /// Statistics of one execution.
    report_batch_statistics = TRITONBACKEND_ModelInstanceReportBatchStatistics(instance: Instance,
        batch_size: u64, exec_start: u64, compute_start: u64, compute_end: u64, exec_end: u64);

    /// The id the client gave.
    request_id = TRITONBACKEND_RequestId(request: Request) -> *const c_char = null();
    /// Whether the client gave the request up.
    request_is_cancelled = TRITONBACKEND_RequestIsCancelled(request: Request) -> bool = false;
    /// The correlation id, where it is a number.
    request_correlation_id = TRITONBACKEND_RequestCorrelationId(request: Request) -> u64 = 0;
    /// The correlation id, where it is a string.
    request_correlation_id_string = TRITONBACKEND_RequestCorrelationIdString(request: Request)
        -> *const c_char = null();
    /// The sequence flags.
    request_flags = TRITONBACKEND_RequestFlags(request: Request) -> u32 = 0;
    /// The timeout in microseconds; 0 for none.
    /// How many parameters the client set.
    request_parameter_count = TRITONBACKEND_RequestParameterCount(request: Request) -> u32 = 0;
    /// How many inputs came.
    request_input_count = TRITONBACKEND_RequestInputCount(request: Request) -> u32 = 0;
    /// An input by name.
    request_input = TRITONBACKEND_RequestInput(request: Request, name: *const c_char)
        -> *mut TRITONBACKEND_Input = null_mut();
    /// An input by position.
    request_input_by_index = TRITONBACKEND_RequestInputByIndex(request: Request, index: u32)
        -> *mut TRITONBACKEND_Input = null_mut();
    /// How many outputs are asked for.
    request_output_count = TRITONBACKEND_RequestOutputCount(request: Request) -> u32 = 0;
    /// The name of an output that is asked for.
    request_output_name = TRITONBACKEND_RequestOutputName(request: Request, index: u32)
        -> *const c_char = null();
    /// The request's trace; null where it is not traced.
    request_trace = TRITONBACKEND_RequestTrace(request: Request) -> *mut TRITONSERVER_InferenceTrace = null_mut();
    /// Gives the request back to the server.
    request_release = TRITONBACKEND_RequestRelease(request: Request, flags: u32);

    /// Deletes what makes responses.
    response_factory_delete = TRITONBACKEND_ResponseFactoryDelete(factory: Factory);
    /// Sends flags without a response.
    response_factory_send_flags = TRITONBACKEND_ResponseFactorySendFlags(factory: Factory, flags: u32);
    /// Whether the client gave the request up.
    response_factory_is_cancelled = TRITONBACKEND_ResponseFactoryIsCancelled(factory: Factory) -> bool = false;
    /// Deletes a response that was never sent.
    response_delete = TRITONBACKEND_ResponseDelete(response: Response);
    /// A parameter of the response.
    response_set_string = TRITONBACKEND_ResponseSetStringParameter(response: Response, name: *const c_char,
        value: *const c_char);
    /// A parameter of the response.
    response_set_int = TRITONBACKEND_ResponseSetIntParameter(response: Response, name: *const c_char, value: i64);
    /// A parameter of the response.
    response_set_bool = TRITONBACKEND_ResponseSetBoolParameter(response: Response, name: *const c_char,
        value: bool);
    /// Sends the response, which is consumed even on failure; `error` stays the caller's.
    response_send = TRITONBACKEND_ResponseSend(response: Response, flags: u32, error: *mut TRITONSERVER_Error);

    /// Deletes a message.
    message_delete = TRITONSERVER_MessageDelete(message: *mut TRITONSERVER_Message);
    /// Deletes an allocator.
    allocator_delete = TRITONSERVER_ResponseAllocatorDelete(allocator: *mut TRITONSERVER_ResponseAllocator);
    /// Writes a log line.
    log_message = TRITONSERVER_LogMessage(level: TRITONSERVER_LogLevel, file: *const c_char, line: i32,
        message: *const c_char);
    /// Whether a model can be called.
    server_model_is_ready = TRITONSERVER_ServerModelIsReady(server: *mut TRITONSERVER_Server,
        name: *const c_char, version: i64) -> bool = false;

    /// Deletes an in-process request.
    inference_delete = TRITONSERVER_InferenceRequestDelete(request: Inference);
    /// Sets the id.
    inference_set_id = TRITONSERVER_InferenceRequestSetId(request: Inference, id: *const c_char);
    /// Sets the sequence flags.
    inference_set_flags = TRITONSERVER_InferenceRequestSetFlags(request: Inference, flags: u32);
    /// Sets the correlation id.
    inference_set_correlation_id = TRITONSERVER_InferenceRequestSetCorrelationId(request: Inference, id: u64);
    /// Sets the correlation id.
    inference_set_correlation_id_string = TRITONSERVER_InferenceRequestSetCorrelationIdString(
        request: Inference, id: *const c_char);
    /// Sets the timeout in microseconds.
    inference_set_timeout = TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(request: Inference, timeout: u64);
    /// Sets the priority; 0 is the model's own.
    inference_set_priority = TRITONSERVER_InferenceRequestSetPriorityUInt64(request: Inference, priority: u64);
    /// A parameter of the in-process request.
    inference_set_string = TRITONSERVER_InferenceRequestSetStringParameter(request: Inference,
        name: *const c_char, value: *const c_char);
    /// A parameter of the in-process request.
    inference_set_int = TRITONSERVER_InferenceRequestSetIntParameter(request: Inference, name: *const c_char,
        value: i64);
    /// A parameter of the in-process request.
    inference_set_bool = TRITONSERVER_InferenceRequestSetBoolParameter(request: Inference, name: *const c_char,
        value: bool);
    /// Gives the request up.
    inference_cancel = TRITONSERVER_InferenceRequestCancel(request: Inference);
    /// Declares an input.
    inference_add_input = TRITONSERVER_InferenceRequestAddInput(request: Inference, name: *const c_char,
        data_type: TRITONSERVER_DataType, shape: *const i64, dim_count: u64);
    /// Adds a buffer to an input.
    inference_append_input_data = TRITONSERVER_InferenceRequestAppendInputData(request: Inference,
        name: *const c_char, base: *const c_void, byte_size: usize, memory_type: TRITONSERVER_MemoryType,
        memory_type_id: i64);
    /// Asks for an output.
    inference_add_requested_output = TRITONSERVER_InferenceRequestAddRequestedOutput(request: Inference,
        name: *const c_char);
    /// Sets who is told that the server is done with the request.
    inference_set_release_callback = TRITONSERVER_InferenceRequestSetReleaseCallback(request: Inference,
        callback: TRITONSERVER_InferenceRequestReleaseFn_t, user: *mut c_void);
    /// Sets who gets the responses and where their outputs are allocated.
    inference_set_response_callback = TRITONSERVER_InferenceRequestSetResponseCallback(request: Inference,
        allocator: *mut TRITONSERVER_ResponseAllocator, allocator_user: *mut c_void,
        callback: TRITONSERVER_InferenceResponseCompleteFn_t, user: *mut c_void);
    /// Starts the request. On success it is the server's until the release callback; the trace is the server's
    /// from here on in any case.
    server_infer_async = TRITONSERVER_ServerInferAsync(server: *mut TRITONSERVER_Server, request: Inference,
        trace: *mut TRITONSERVER_InferenceTrace);
    /// Deletes a response.
    inferred_delete = TRITONSERVER_InferenceResponseDelete(response: Inferred);
    /// The id of the request that a response answers.
    inferred_id = TRITONSERVER_InferenceResponseId(response: Inferred) -> *const c_char = null();
    /// How many parameters a response has.
    inferred_parameter_count = TRITONSERVER_InferenceResponseParameterCount(response: Inferred) -> u32 = 0;
    /// How many outputs a response has.
    inferred_output_count = TRITONSERVER_InferenceResponseOutputCount(response: Inferred) -> u32 = 0;
    /// A trace below another one.
    trace_spawn_child = TRITONSERVER_InferenceTraceSpawnChildTrace(trace: *mut TRITONSERVER_InferenceTrace)
        -> *mut TRITONSERVER_InferenceTrace = null_mut();
    /// Deletes a trace.
    trace_delete = TRITONSERVER_InferenceTraceDelete(trace: *mut TRITONSERVER_InferenceTrace);
}

late! {
    /// The timeout that the client set.
    request_timeout = TRITONBACKEND_InferenceRequestTimeoutMicroseconds:
        TRITONBACKEND_InferenceRequestTimeoutMicroseconds_late, since "backend API 1.17"
        (request: Request) -> u64 = 0;
    /// A parameter of the response.
    response_set_double = TRITONBACKEND_ResponseSetDoubleParameter:
        TRITONBACKEND_ResponseSetDoubleParameter_late, since "backend API 1.18"
        (response: Response, name: *const c_char, value: f64);
    /// A parameter of the in-process request.
    inference_set_double = TRITONSERVER_InferenceRequestSetDoubleParameter:
        TRITONSERVER_InferenceRequestSetDoubleParameter_late, since "backend API 1.18"
        (request: Inference, name: *const c_char, value: f64);
}

/// Whether this server has parameters that are doubles. Where it has not, the number of their type means another one.
pub fn has_doubles() -> bool {
    static SET: late::Late<TRITONBACKEND_ResponseSetDoubleParameter_late> =
        late::Late::new("TRITONBACKEND_ResponseSetDoubleParameter\0", "backend API 1.18");
    SET.get().is_ok()
}

/// The server's backend API version, major and minor.
///
/// # Safety
/// See the module.
pub unsafe fn api_version() -> Result<(u32, u32)> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both places are live.
    unsafe { check(TRITONBACKEND_ApiVersion(&mut major, &mut minor)) }?;
    Ok((major, minor))
}

/// Kind and place of what the model was loaded from.
///
/// # Safety
/// See the module.
pub unsafe fn model_repository(model: Model) -> Result<(TRITONBACKEND_ArtifactType, *const c_char)> {
    let (mut kind, mut location) = (0, null());
    // SAFETY: the module's promise; both places are live.
    unsafe { check(TRITONBACKEND_ModelRepository(model, &mut kind, &mut location)) }?;
    Ok((kind, location))
}

/// The JSON text of a message; it belongs to the message.
///
/// # Safety
/// See the module.
pub unsafe fn message_json(message: *mut TRITONSERVER_Message) -> Result<(*const c_char, usize)> {
    let (mut base, mut size) = (null(), 0);
    // SAFETY: the module's promise; both places are live.
    unsafe { check(TRITONSERVER_MessageSerializeToJson(message, &mut base, &mut size)) }?;
    Ok((base, size))
}

/// A message holding `json`, which the caller owns.
///
/// # Safety
/// See the module.
pub unsafe fn message_new(json: &str) -> Result<*mut TRITONSERVER_Message> {
    let base = json.as_ptr().cast();
    // SAFETY: the text is live for its length; the server copies it.
    unsafe { out(null_mut(), |message| TRITONSERVER_MessageNewFromSerializedJson(message, base, json.len())) }
}

/// A new response to a request, which the caller owns.
///
/// # Safety
/// See the module.
pub unsafe fn response_new(request: Request) -> Result<Response> {
    // SAFETY: the module's promise.
    unsafe { out(null_mut(), |response| TRITONBACKEND_ResponseNew(response, request)) }
}

/// What makes responses to a request, also after its release; the caller owns it.
///
/// # Safety
/// See the module.
pub unsafe fn response_factory_new(request: Request) -> Result<Factory> {
    // SAFETY: the module's promise.
    unsafe { out(null_mut(), |factory| TRITONBACKEND_ResponseFactoryNew(factory, request)) }
}

/// A new response, which the caller owns.
///
/// # Safety
/// See the module.
pub unsafe fn response_new_from_factory(factory: Factory) -> Result<Response> {
    // SAFETY: the module's promise.
    unsafe { out(null_mut(), |response| TRITONBACKEND_ResponseNewFromFactory(response, factory)) }
}

/// Adds an output to a response.
///
/// # Safety
/// See the module; `name` is NUL-terminated.
pub unsafe fn response_output(
    response: Response,
    name: *const c_char,
    data_type: TRITONSERVER_DataType,
    shape: &[i64],
) -> Result<*mut TRITONBACKEND_Output> {
    let (dims, count) = (shape.as_ptr(), shape.len() as u32);
    // SAFETY: the module's promise; the shape is live for its length and copied.
    unsafe {
        out(null_mut(), |output| TRITONBACKEND_ResponseOutput(response, output, name, data_type, dims, count))
    }
}

/// A piece of memory as the ABI describes it.
#[derive(Clone, Copy)]
pub struct Buffer {
    pub base: *mut c_void,
    pub byte_size: usize,
    pub memory_type: TRITONSERVER_MemoryType,
    pub memory_type_id: i64,
}

/// Memory for an output, of the wanted kind where the server can.
///
/// # Safety
/// See the module.
pub unsafe fn output_buffer(
    output: *mut TRITONBACKEND_Output,
    byte_size: usize,
    mut memory_type: TRITONSERVER_MemoryType,
    mut memory_type_id: i64,
) -> Result<Buffer> {
    let mut base = null_mut();
    // SAFETY: the module's promise; all places are live.
    unsafe {
        check(TRITONBACKEND_OutputBuffer(
            output,
            &mut base,
            byte_size as u64,
            &mut memory_type,
            &mut memory_type_id,
        ))
    }?;
    Ok(Buffer { base, byte_size, memory_type, memory_type_id })
}

/// A tensor as the ABI describes it; name and shape belong to the object it was asked of.
pub struct Tensor {
    pub name: *const c_char,
    pub data_type: TRITONSERVER_DataType,
    pub shape: *const i64,
    pub dim_count: usize,
}

/// One of a request's parameters; all of it belongs to the request.
///
/// # Safety
/// See the module.
pub unsafe fn request_parameter(
    request: Request,
    index: u32,
) -> Result<(*const c_char, TRITONSERVER_ParameterType, *const c_void)> {
    let (mut name, mut kind, mut value) = (null(), 0, null());
    // SAFETY: the module's promise; all places are live.
    unsafe { check(TRITONBACKEND_RequestParameter(request, index, &mut name, &mut kind, &mut value)) }?;
    Ok((name, kind, value))
}

/// An input's description, its byte size, and how many buffers it lies in: those for a host policy, or, where that is
/// null, those for all.
///
/// # Safety
/// See the module; `policy` is null or NUL-terminated.
pub unsafe fn input_properties(
    input: *mut TRITONBACKEND_Input,
    policy: *const c_char,
) -> Result<(Tensor, u64, u32)> {
    let (mut name, mut data_type, mut shape) = (null(), TRITONSERVER_TYPE_INVALID, null());
    let (mut dims, mut byte_size, mut buffers) = (0, 0, 0);
    // SAFETY: the module's promise; all places are live.
    unsafe {
        let (name, data_type, shape) = (&raw mut name, &raw mut data_type, &raw mut shape);
        let (dims, byte_size, buffers) = (&raw mut dims, &raw mut byte_size, &raw mut buffers);
        check(match policy.is_null() {
            true => TRITONBACKEND_InputProperties(input, name, data_type, shape, dims, byte_size, buffers),
            false => TRITONBACKEND_InputPropertiesForHostPolicy(
                input, policy, name, data_type, shape, dims, byte_size, buffers,
            ),
        })
    }?;
    Ok((Tensor { name, data_type, shape, dim_count: dims as usize }, byte_size, buffers))
}

/// One of an input's buffers, or of those for a host policy; the server's to write, ours to read.
///
/// # Safety
/// See the module; `policy` is null or NUL-terminated.
pub unsafe fn input_buffer(
    input: *mut TRITONBACKEND_Input,
    policy: *const c_char,
    index: u32,
) -> Result<Buffer> {
    let (mut base, mut byte_size) = (null(), 0);
    let (mut memory_type, mut memory_type_id) = (TRITONSERVER_MEMORY_CPU, 0);
    // SAFETY: the module's promise; all places are live.
    unsafe {
        let (base, size) = (&raw mut base, &raw mut byte_size);
        let (kind, id) = (&raw mut memory_type, &raw mut memory_type_id);
        check(match policy.is_null() {
            true => TRITONBACKEND_InputBuffer(input, index, base, size, kind, id),
            false => TRITONBACKEND_InputBufferForHostPolicy(input, policy, index, base, size, kind, id),
        })
    }?;
    Ok(Buffer { base: base.cast_mut(), byte_size: byte_size as usize, memory_type, memory_type_id })
}

/// An allocator of output memory for in-process requests, which the caller owns.
///
/// # Safety
/// See the module; the functions keep the ABI's contract.
pub unsafe fn allocator_new(
    alloc: TRITONSERVER_ResponseAllocatorAllocFn_t,
    release: TRITONSERVER_ResponseAllocatorReleaseFn_t,
) -> Result<*mut TRITONSERVER_ResponseAllocator> {
    // SAFETY: the module's promise.
    unsafe { out(null_mut(), |allocator| TRITONSERVER_ResponseAllocatorNew(allocator, alloc, release, None)) }
}

/// A new in-process request, which the caller owns.
///
/// # Safety
/// See the module; `name` is NUL-terminated.
pub unsafe fn inference_new(
    server: *mut TRITONSERVER_Server,
    name: *const c_char,
    version: i64,
) -> Result<Inference> {
    // SAFETY: the module's promise.
    unsafe { out(null_mut(), |request| TRITONSERVER_InferenceRequestNew(request, server, name, version)) }
}

/// The error a response carries, which stays the response's.
///
/// # Safety
/// See the module.
pub unsafe fn inferred_error(response: Inferred) -> Result<()> {
    // SAFETY: the module's promise.
    let error = unsafe { TRITONSERVER_InferenceResponseError(response) };
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: live as long as the response is.
    Err(unsafe { peek(error) })
}

/// Name and version of the model that answered; the name belongs to the response.
///
/// # Safety
/// See the module.
pub unsafe fn inferred_model(response: Inferred) -> Result<(*const c_char, i64)> {
    let (mut name, mut version) = (null(), 0);
    // SAFETY: the module's promise; both places are live.
    unsafe { check(TRITONSERVER_InferenceResponseModel(response, &mut name, &mut version)) }?;
    Ok((name, version))
}

/// One of a response's parameters; all of it belongs to the response.
///
/// # Safety
/// See the module.
pub unsafe fn inferred_parameter(
    response: Inferred,
    index: u32,
) -> Result<(*const c_char, TRITONSERVER_ParameterType, *const c_void)> {
    let (mut name, mut kind, mut value) = (null(), 0, null());
    // SAFETY: the module's promise; all places are live.
    unsafe {
        check(TRITONSERVER_InferenceResponseParameter(response, index, &mut name, &mut kind, &mut value))
    }?;
    Ok((name, kind, value))
}

/// One of a response's outputs; all of it belongs to the response.
///
/// # Safety
/// See the module.
pub unsafe fn inferred_output(response: Inferred, index: u32) -> Result<(Tensor, Buffer)> {
    let (mut name, mut data_type, mut shape, mut dims) = (null(), TRITONSERVER_TYPE_INVALID, null(), 0);
    let (mut base, mut byte_size, mut user) = (null(), 0, null_mut());
    let (mut memory_type, mut memory_type_id) = (TRITONSERVER_MEMORY_CPU, 0);
    // SAFETY: the module's promise; all places are live.
    unsafe {
        check(TRITONSERVER_InferenceResponseOutput(
            response,
            index,
            &mut name,
            &mut data_type,
            &mut shape,
            &mut dims,
            &mut base,
            &mut byte_size,
            &mut memory_type,
            &mut memory_type_id,
            &mut user,
        ))
    }?;
    let tensor = Tensor { name, data_type, shape, dim_count: dims as usize };
    Ok((tensor, Buffer { base: base.cast_mut(), byte_size, memory_type, memory_type_id }))
}

impl Tensor {
    /// The shape.
    ///
    /// # Safety
    /// The object that this description was asked of lives through `'a`.
    pub unsafe fn shape<'a>(&self) -> &'a [i64] {
        if self.dim_count == 0 || self.shape.is_null() {
            return &[];
        }
        // SAFETY: the ABI gives `dim_count` dimensions, owned by that object.
        unsafe { std::slice::from_raw_parts(self.shape, self.dim_count) }
    }
}
