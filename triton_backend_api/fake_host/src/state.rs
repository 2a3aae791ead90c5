//! Everything the host knows, behind one lock, and the way every call goes: counted, made to fail where a test
//! wants it, checked, answered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{CStr, c_char};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use triton_backend_api::sys::*;

use crate::allocator::AllocatorObject;
use crate::attributes::AttributesObject;
use crate::backend::{BackendAttributes, BackendObject};
use crate::child::Children;
use crate::error::{ErrorObject, HostError};
use crate::factory::FactoryObject;
use crate::inference::InferenceObject;
use crate::inferred::InferredObject;
use crate::instance::{BatchStatistics, InstanceObject};
use crate::log::Log;
use crate::memory::Memory;
use crate::message::MessageObject;
use crate::metrics::{ArgsObject, Endpoint, FamilyObject, MetricObject, ParameterObject};
use crate::model::ModelObject;
use crate::request::{Answers, InputObject, RequestObject};
use crate::response::{OutputObject, ResponseObject};
use crate::server::Health;
use crate::statistics::Form;
use crate::table::{Table, pointer};
use crate::trace::TraceObject;

/// Why a call is refused.
pub(crate) enum Refusal {
    /// As the server may: an error code and a text.
    Error(TRITONSERVER_Error_Code, String),
    /// Because the backend broke the rules. It gets an error too, and the test gets to know.
    Violation(String),
}

pub(crate) type Outcome<T = ()> = Result<T, Refusal>;

/// One call that is to fail.
struct Fault {
    symbol: &'static str,
    /// How many calls of the symbol are left until it fails, that one included.
    left: usize,
    error: HostError,
}

pub(crate) struct State {
    pub api_version: (u32, u32),
    pub violations: Vec<String>,
    pub calls: BTreeMap<&'static str, usize>,
    pub batch_statistics: Vec<BatchStatistics>,
    pub log: Log,
    pub children: Children,
    pub answers: Answers,
    pub endpoint: Endpoint,
    /// The response to each request that was made last.
    pub newest_responses: HashMap<usize, usize>,
    pub health: Health,
    pub memory: Memory,
    /// What the command line sets for each host policy.
    pub host_policies: BTreeMap<String, Value>,
    /// Younger calls that this server does not have.
    pub absent: BTreeSet<&'static str>,
    faults: Vec<Fault>,
    pub errors: Table<ErrorObject>,
    pub messages: Table<MessageObject>,
    pub servers: Table<()>,
    pub backends: Table<BackendObject>,
    pub attributes: Table<BackendAttributes>,
    pub models: Table<ModelObject>,
    pub instances: Table<InstanceObject>,
    pub requests: Table<RequestObject>,
    pub inputs: Table<InputObject>,
    pub buffer_attributes: Table<AttributesObject>,
    pub factories: Table<FactoryObject>,
    pub responses: Table<ResponseObject>,
    pub outputs: Table<OutputObject>,
    pub response_statistics: Table<Form>,
    pub traces: Table<TraceObject>,
    pub allocators: Table<AllocatorObject>,
    pub inferences: Table<InferenceObject>,
    pub inferred: Table<InferredObject>,
    pub families: Table<FamilyObject>,
    pub metrics: Table<MetricObject>,
    pub metric_args: Table<ArgsObject>,
    pub parameters: Table<ParameterObject>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            api_version: (TRITON_ABI_BACKEND_MAJOR, TRITON_ABI_BACKEND_MINOR),
            violations: Vec::new(),
            calls: BTreeMap::new(),
            batch_statistics: Vec::new(),
            log: Log::default(),
            children: Children::default(),
            answers: Answers::default(),
            endpoint: Endpoint::default(),
            newest_responses: HashMap::new(),
            health: Health::default(),
            memory: Memory::default(),
            host_policies: BTreeMap::new(),
            absent: BTreeSet::new(),
            faults: Vec::new(),
            errors: Table::new("error"),
            messages: Table::new("message"),
            servers: Table::new("server"),
            backends: Table::new("backend"),
            attributes: Table::new("backend attribute"),
            models: Table::new("model"),
            instances: Table::new("instance"),
            requests: Table::new("request"),
            inputs: Table::new("input"),
            buffer_attributes: Table::new("buffer attributes"),
            factories: Table::new("response factory"),
            responses: Table::new("response"),
            outputs: Table::new("output"),
            response_statistics: Table::new("response statistics object"),
            traces: Table::new("trace"),
            allocators: Table::new("allocator"),
            inferences: Table::new("in-process request"),
            inferred: Table::new("in-process response"),
            families: Table::new("metric family"),
            metrics: Table::new("metric"),
            metric_args: Table::new("metric argument"),
            parameters: Table::new("parameter"),
        }
    }
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);
/// Told whenever something happened that somebody may wait for.
pub(crate) static CHANGED: Condvar = Condvar::new();

pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    pub fn fail(&mut self, symbol: &'static str, nth: usize, error: HostError) {
        self.faults.push(Fault { symbol, left: nth, error });
    }

    /// Counts a call; the error it is to fail with, if it is.
    fn enter(&mut self, symbol: &'static str) -> Option<HostError> {
        *self.calls.entry(symbol).or_default() += 1;
        for fault in self.faults.iter_mut().filter(|fault| fault.symbol == symbol) {
            fault.left = fault.left.saturating_sub(1);
        }
        let due = self.faults.iter().position(|fault| fault.symbol == symbol && fault.left == 0)?;
        Some(self.faults.remove(due).error)
    }

    /// How many faults were never met.
    pub fn faults_left(&self) -> usize {
        self.faults.len()
    }

    pub fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    fn refuse(&mut self, symbol: &str, refusal: Refusal) -> *mut TRITONSERVER_Error {
        let error = match refusal {
            Refusal::Error(code, message) => HostError { code, message },
            Refusal::Violation(what) => {
                let what = format!("{symbol}: {what}");
                self.violation(what.clone());
                HostError { code: TRITONSERVER_ERROR_INTERNAL, message: what }
            }
        };
        pointer(self.errors.insert(ErrorObject::new(&error, symbol)))
    }
}

/// Goes through with a call that leaves everything as it was where it fails.
pub(crate) fn call(
    symbol: &'static str,
    body: impl FnOnce(&mut State) -> Outcome,
) -> *mut TRITONSERVER_Error {
    let mut state = lock();
    let outcome = match state.enter(symbol) {
        Some(HostError { code, message }) => Err(Refusal::Error(code, message)),
        None => body(&mut state),
    };
    match outcome {
        Ok(()) => std::ptr::null_mut(),
        Err(refusal) => state.refuse(symbol, refusal),
    }
}

/// Goes through with a call that consumes what it is given also where it fails: `body` is told whether it does.
/// `after` runs outside the lock, since it may call back into the backend.
pub(crate) fn consume<T>(
    symbol: &'static str,
    body: impl FnOnce(&mut State, bool) -> Outcome<T>,
    after: impl FnOnce(T),
) -> *mut TRITONSERVER_Error {
    let mut state = lock();
    let fault = state.enter(symbol);
    let outcome = body(&mut state, fault.is_some());
    drop(state);
    CHANGED.notify_all();
    let outcome = outcome.map(after);
    let outcome = match (outcome, fault) {
        (Ok(()), None) => return std::ptr::null_mut(),
        (Ok(()), Some(HostError { code, message })) => Err(Refusal::Error(code, message)),
        (Err(refusal), _) => Err(refusal),
    };
    match outcome {
        Ok(()) => std::ptr::null_mut(),
        Err(refusal) => lock().refuse(symbol, refusal),
    }
}

/// A copy of a string that the backend passed; null is a violation.
///
/// # Safety
/// `string` is null or a live NUL-terminated string.
pub(crate) unsafe fn text(string: *const c_char) -> Outcome<String> {
    if string.is_null() {
        return Err(Refusal::Violation("null was passed for a string".to_owned()));
    }
    // SAFETY: live and NUL-terminated, see above.
    let string = unsafe { CStr::from_ptr(string) };
    string.to_str().map(str::to_owned).map_err(|_| {
        Refusal::Violation(format!("{:?} was passed, which is no UTF-8", string.to_string_lossy()))
    })
}

/// Writes an out-parameter; a place that is null is a violation.
///
/// # Safety
/// `place` is null or a live place.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Outcome {
    if place.is_null() {
        return Err(Refusal::Violation("null was passed for the place of a result".to_owned()));
    }
    // SAFETY: live, see above.
    unsafe { place.write(value) };
    Ok(())
}

/// An object that this host has no more of than the backend asks for.
pub(crate) fn out_of_bounds<T>(what: &str, index: u32, count: usize) -> Outcome<T> {
    Err(Refusal::Error(
        TRITONSERVER_ERROR_INVALID_ARG,
        format!("{what} {index} was asked for; there are {count}"),
    ))
}

/// Defines calls of the ABI that leave everything as it was where they fail. The signature is checked against
/// the declarations that the backend is compiled with.
macro_rules! symbols {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) |$state:ident| $body:block)*) => {
        $( const _: unsafe extern "C" fn($($type),*) -> *mut TRITONSERVER_Error = triton_backend_api::sys::$name; )*
        $crate::state::symbols_without_declaration! { $(fn $name($($arg: $type),*) |$state| $body)* }
    };
}
pub(crate) use symbols;

/// The same for calls that the crate under test does not make, so that it has no declaration of them.
macro_rules! symbols_without_declaration {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) |$state:ident| $body:block)*) => { $(
        /// See the ABI.
        ///
        /// # Safety
        /// Pointers are what the ABI asks for: live strings and places; handles are checked.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> *mut TRITONSERVER_Error {
            $crate::state::call(stringify!($name), |$state| {
                #[allow(unused_unsafe)] // some bodies have no place to write to
                // SAFETY: strings and places are live, as the ABI has it.
                unsafe { $body }
            })
        }
    )* };
}
pub(crate) use symbols_without_declaration;
