//! Calls that are younger than the floor: looked for in the server when they are first needed, so that one object
//! loads on older servers too. One that a server does not have is an UNSUPPORTED error that names it.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::error::{Error, Result};

/// Finds the address of a call; null where the server does not have it.
pub type Lookup = fn(&CStr) -> *mut c_void;

static LOOKUP: OnceLock<Lookup> = OnceLock::new();

/// Looks elsewhere than in the process: a host of tests has its calls where the dynamic linker does not see them,
/// and plays servers that lack some.
///
/// # Safety
/// What `lookup` returns is null or the address of the call of that name, of the type that the ABI gives it.
pub unsafe fn look_in(lookup: Lookup) {
    let _ = LOOKUP.set(lookup);
}

/// A call by name; `F` is the type `NAME_late` that the bindings have for it: a function pointer, or none.
pub struct Late<F> {
    name: &'static CStr,
    /// Which version brought it.
    since: &'static str,
    /// Null until it is found.
    found: AtomicPtr<c_void>,
    call: PhantomData<F>,
}

impl<F> Late<Option<F>> {
    /// `name` is NUL-terminated.
    pub const fn new(name: &'static str, since: &'static str) -> Self {
        let name = match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        };
        Self { name, since, found: AtomicPtr::new(null_mut()), call: PhantomData }
    }

    /// The call, or an error where the server does not have it.
    pub fn get(&self) -> Result<F> {
        const { assert!(size_of::<Option<F>>() == size_of::<*mut c_void>()) };
        let address = self.address();
        // SAFETY: F is a pointer to a function of the ABI's type for this name (see `late!`); null is none.
        let call: Option<F> = unsafe { std::mem::transmute_copy(&address) };
        call.ok_or_else(|| {
            let (name, since) = (self.name.to_string_lossy(), self.since);
            Error::unsupported(format!("this server has no {name}: it came with {since}"))
        })
    }

    fn address(&self) -> *mut c_void {
        if let Some(lookup) = LOOKUP.get() {
            return lookup(self.name);
        }
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: a NUL-terminated name. The search goes where this object's undefined symbols were found.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Defines wrappers of younger calls, as `wrap!` does of the others.
macro_rules! late {
    ($($(#[$doc:meta])* $name:ident = $symbol:ident: $call:ty, since $since:literal
        ($($arg:ident: $type:ty),*) $(-> $out:ty = $init:expr)?;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// See the module.
        pub unsafe fn $name($($arg: $type),*) -> Result<late!(@out $($out)?)> {
            static CALL: $crate::raw::late::Late<$call> =
                $crate::raw::late::Late::new(concat!(stringify!($symbol), "\0"), $since);
            let call = CALL.get()?;
            // SAFETY: the caller's promise is that of the module.
            unsafe { late!(@call call($($arg),*) $($init)?) }
        }
    )* };
    (@out) => { () };
    (@out $out:ty) => { $out };
    (@call $call:ident($($arg:ident),*)) => { check($call($($arg),*)) };
    (@call $call:ident($($arg:ident),*) $init:expr) => { out($init, |value| $call($($arg,)* value)) };
}
pub(crate) use late;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_process_has_is_found_and_what_it_lacks_is_an_error_that_names_it() {
        type Strlen = Option<unsafe extern "C" fn(*const std::ffi::c_char) -> usize>;
        static HERE: Late<Strlen> = Late::new("strlen\0", "C");
        for _ in 0..2 {
            let strlen = HERE.get().unwrap();
            // SAFETY: a NUL-terminated string.
            assert_eq!(unsafe { strlen(c"four".as_ptr()) }, 4);
        }
        static NOWHERE: Late<Strlen> = Late::new("TRITONSERVER_NoSuchCall\0", "server API 9.9");
        let absent = NOWHERE.get().unwrap_err();
        assert_eq!(absent.code(), crate::ErrorCode::Unsupported);
        assert_eq!(
            absent.message(),
            "this server has no TRITONSERVER_NoSuchCall: it came with server API 9.9"
        );
    }
}
