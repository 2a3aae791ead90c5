//! Calls that are younger than the floor: found by name, and absent where the host plays an older server.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use crate::state::lock;

/// A younger call, as its file registers it.
pub(crate) struct LateSymbol {
    pub name: &'static str,
    pub address: fn() -> *mut c_void,
}

/// Every younger call that this host has.
const ALL: &[&[LateSymbol]] =
    &[crate::inference::LATE, crate::metrics::LATE, crate::response::LATE, crate::statistics::LATE];
/// Calls of the floor itself that backends bind late all the same.
const OF_THE_FLOOR: &[LateSymbol] = crate::request::LATE;

/// Defines younger calls as `symbols!` does, and the list `LATE` of them; calls after `also` are defined elsewhere in the
/// file. The type is checked against the one that the backend calls them by.
macro_rules! late_symbols {
    ($(fn $name:ident: $late:ident($($arg:ident: $type:ty),* $(,)?) |$state:ident| $body:block)*
     also $($other:ident: $other_late:ident),*) => {
        $(
            /// See the ABI.
            ///
            /// # Safety
            /// Pointers are what the ABI asks for: live strings and places; handles are checked.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> *mut TRITONSERVER_Error {
                crate::state::call(stringify!($name), |$state| {
                    #[allow(unused_unsafe)] // some bodies have no place to write to
                    // SAFETY: strings and places are live, as the ABI has it.
                    unsafe { $body }
                })
            }
        )*
        pub(crate) const LATE: &[crate::late::LateSymbol] = &[
            $(crate::late::late_symbols!(@entry $name: $late)),*,
            $(crate::late::late_symbols!(@entry $other: $other_late)),*
        ];
    };
    (@entry $name:ident: $late:ident) => {{
        const _: triton_backend_api::sys::$late = Some($name);
        crate::late::LateSymbol { name: stringify!($name), address: || $name as *mut c_void }
    }};
}
pub(crate) use late_symbols;

/// The way that the backend looks for a younger call.
pub(crate) fn lookup(name: &CStr) -> *mut c_void {
    let state = lock();
    let known = ALL
        .iter()
        .copied()
        .flatten()
        .chain(OF_THE_FLOOR)
        .find(|symbol| name.to_bytes() == symbol.name.as_bytes());
    match known {
        Some(symbol) if !state.absent.contains(symbol.name) => (symbol.address)(),
        _ => null_mut(),
    }
}

impl crate::FakeHost {
    /// Plays a server that has no call younger than the floor.
    pub fn without_younger_calls(&self) {
        lock().absent.extend(ALL.iter().copied().flatten().map(|symbol| symbol.name));
    }

    /// Plays a server that does not have one younger call.
    pub fn without(&self, symbol: &'static str) {
        lock().absent.insert(symbol);
    }
}
