//! Keeps the backend's code mapped for the life of the process.

use std::ffi::c_void;

/// A thread of the backend's may still be on its way out when the server closes the library, so the library asks the
/// loader never to unmap it. (`-z nodelete` does the same, but every author would have to pass it to the linker.)
pub(crate) fn keep_mapped() {
    let mut found = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let here = (keep_mapped as fn() as *const ()).cast::<c_void>();
    // SAFETY: an address of this object's own code, and a live place for what is found.
    if unsafe { libc::dladdr(here, &mut found) } != 0 && !found.dli_fname.is_null() {
        // SAFETY: the loader's own name of this object. It is loaded already, so nothing is run; the handle that this
        // returns is never closed. In an executable it finds nothing, and nothing is needed.
        unsafe { libc::dlopen(found.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    }
}
