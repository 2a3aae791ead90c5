//! A backend with a mistake: it reads one byte beyond its block when the server loads it. What watches the real backend must see it.

use std::ffi::c_void;
use std::ptr::null_mut;

#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_Initialize(_: *mut c_void) -> *mut c_void {
    let block = vec![0u8; 24];
    // SAFETY: none; this is the mistake.
    let _ = unsafe { block.as_ptr().add(std::hint::black_box(24)).read_volatile() };
    null_mut()
}

/// The server asks for it before it calls anything.
#[unsafe(no_mangle)]
extern "C" fn TRITONBACKEND_ModelInstanceExecute(_: *mut c_void, _: *mut *mut c_void, _: u32) -> *mut c_void {
    null_mut()
}
