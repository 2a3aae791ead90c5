//! Response factories: they make responses also after the request is released.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use triton_backend_api::sys::*;

use crate::response::Origin;
use crate::state::{State, consume, put, symbols};
use crate::table::{handle, pointer};
use crate::test_request::OutputPlace;

/// What a request and everything that answers it have in common.
pub(crate) struct Common {
    pub model: usize,
    /// Whether several responses are allowed.
    pub decoupled: bool,
    pub cancelled: AtomicBool,
    /// Where the client wants its outputs.
    pub places: HashMap<String, OutputPlace>,
}

pub(crate) struct FactoryObject {
    pub request: usize,
    pub common: Arc<Common>,
}

impl State {
    /// Whether anything can still answer a request that is released.
    pub fn has_factory(&self, request: usize) -> bool {
        self.factories.iter().any(|(_, factory)| factory.request == request)
    }
}

symbols! {
    fn TRITONBACKEND_ResponseFactoryNew(
        factory: *mut *mut TRITONBACKEND_ResponseFactory, request: *mut TRITONBACKEND_Request
    ) |state| {
        let request = handle(request);
        let common = state.requests.get(request)?.common.clone();
        put(factory, pointer(state.factories.insert(FactoryObject { request, common })))
    }

    fn TRITONBACKEND_ResponseFactoryIsCancelled(
        factory: *mut TRITONBACKEND_ResponseFactory, is_cancelled: *mut bool
    ) |state| {
        put(is_cancelled, state.factories.get(handle(factory))?.common.cancelled.load(Ordering::SeqCst))
    }

    fn TRITONBACKEND_ResponseNewFromFactory(
        response: *mut *mut TRITONBACKEND_Response, factory: *mut TRITONBACKEND_ResponseFactory
    ) |state| {
        let FactoryObject { request, common } = state.factories.get(handle(factory))?;
        let origin = Origin { request: *request, common: common.clone(), by_factory: true };
        put(response, pointer(state.new_response(origin)))
    }
}

/// See the ABI. Flags that are made to fail are not sent again: the attempt counts.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONBACKEND_ResponseFactorySendFlags(
    factory: *mut TRITONBACKEND_ResponseFactory,
    send_flags: u32,
) -> *mut TRITONSERVER_Error {
    let send = |state: &mut State, _| {
        let request = state.factories.get(handle(factory))?.request;
        if send_flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL != 0 {
            let name = state.requests.name(request);
            if state.answer(request).is_final() {
                state.violation(format!("{name} was ended after its final response"));
            }
            state.answer(request).ended_without_response = true;
        }
        Ok(())
    };
    consume("TRITONBACKEND_ResponseFactorySendFlags", send, drop)
}

/// See the ABI. The last that can answer a request must not go before the answer.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONBACKEND_ResponseFactoryDelete(
    factory: *mut TRITONBACKEND_ResponseFactory,
) -> *mut TRITONSERVER_Error {
    let delete = |state: &mut State, _| {
        let FactoryObject { request, common } = state.factories.end(handle(factory), "deleted")?;
        let last = !state.requests.is_live(request) && !state.has_factory(request);
        if last && !state.answer(request).is_final() {
            let name = state.requests.name(request);
            state.violation(format!("the last factory of {name} was deleted before the final response"));
        }
        Ok(common.model)
    };
    consume("TRITONBACKEND_ResponseFactoryDelete", delete, crate::model::unload_if_idle)
}
