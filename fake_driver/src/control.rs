//! What tests ask of the driver, across the boundary of the shared object: plain C.

use std::ffi::{c_char, c_int};

use crate::memory::Place;
use crate::state::*;

unsafe fn text<'a>(base: *const c_char, length: usize) -> std::borrow::Cow<'a, str> {
    // SAFETY: a string of the client's.
    String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(base.cast(), length) })
}

/// Starts anew with so many GPUs. What was handed out before is forgotten.
#[unsafe(no_mangle)]
pub extern "C" fn fake_driver_reset(devices: usize) {
    *lock() = State::new(devices);
}

/// Sets a GPU's compute capability and memory.
#[unsafe(no_mangle)]
pub extern "C" fn fake_driver_device(device: c_int, capability: c_int, byte_size: usize) {
    if let Some(device) = lock().devices.get_mut(device as usize) {
        (device.capability, device.byte_size) = (capability, byte_size);
    }
}

/// Sets the driver's version.
#[unsafe(no_mangle)]
pub extern "C" fn fake_driver_version(version: c_int) {
    lock().version = version;
}

/// Makes calls fail: `times` of them after `after` that go well.
///
/// # Safety
/// `call` is a string of that length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_driver_fail(
    call: *const c_char,
    length: usize,
    after: usize,
    times: usize,
    code: u32,
) {
    // SAFETY: see above.
    let call = unsafe { text(call, length) }.into_owned();
    lock().faults.push(Fault { call, after, times, code });
}

/// Takes back what [`fake_driver_fail`] asked for.
#[unsafe(no_mangle)]
pub extern "C" fn fake_driver_heal() {
    lock().faults.clear();
}

/// Refuses modules whose image begins so.
///
/// # Safety
/// `head` is that long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_driver_refuse_images(head: *const c_char, length: usize) {
    // SAFETY: see above.
    let head = unsafe { std::slice::from_raw_parts(head.cast::<u8>(), length) }.to_vec();
    lock().refused_images.push(head);
}

/// How often a function was called; "run NAME" counts a kernel's runs, "load sm_86" the modules of that machine code, "load
/// compute_70" those of that PTX.
///
/// # Safety
/// `call` is a string of that length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_driver_calls(call: *const c_char, length: usize) -> usize {
    // SAFETY: see above.
    let call = unsafe { text(call, length) };
    lock().calls.get(call.as_ref()).copied().unwrap_or(0)
}

/// Memory of a GPU, as another library of the process would have it; 0 where there is none left.
#[unsafe(no_mangle)]
pub extern "C" fn fake_driver_allocate(device: c_int, byte_size: usize) -> u64 {
    let place = if device < 0 { Place::Pinned } else { Place::Device(device) };
    lock().allocate(byte_size.max(1), place).unwrap_or(0)
}

/// Gives that memory back.
#[unsafe(no_mangle)]
pub extern "C" fn fake_driver_free(base: u64) {
    let _ = lock().free("the test", base);
}

/// Another library reads or writes memory of a GPU, in a stream of its own: whoever uses it meanwhile was not waited for.
///
/// # Safety
/// `host` is that long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_driver_touch(base: u64, host: *mut u8, byte_size: usize, write: bool) -> bool {
    let mut state = lock();
    if state.check_range("another library", base, byte_size, true).is_err() {
        return false;
    }
    if state.is_in_use(base, byte_size) {
        state.violation(format!("memory at {base:#x} changed hands while work on it was still to run"));
    }
    let Some(allocation) = state.allocation(base) else { return false };
    allocation.open(true);
    // SAFETY: a live allocation, and the client's memory.
    unsafe {
        match write {
            true => std::ptr::copy_nonoverlapping(host, base as *mut u8, byte_size),
            false => std::ptr::copy_nonoverlapping(base as *const u8, host, byte_size),
        }
    }
    allocation.open(false);
    true
}

/// How many bytes of a GPU's memory are in use.
#[unsafe(no_mangle)]
pub extern "C" fn fake_driver_used(device: c_int) -> usize {
    lock().used(device)
}

/// The contexts that are on this thread's stack.
#[unsafe(no_mangle)]
pub extern "C" fn fake_driver_current() -> usize {
    CURRENT.with_borrow(Vec::len)
}

/// What was done wrong (`left` false) or is still there (`left` true), one line each; returns the whole length.
///
/// # Safety
/// `room` is `size` bytes long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_driver_report(left: bool, room: *mut u8, size: usize) -> usize {
    let state = lock();
    let lines = if left { state.left() } else { state.violations.clone() }.join("\n");
    // SAFETY: see above.
    unsafe { std::ptr::copy_nonoverlapping(lines.as_ptr(), room, lines.len().min(size)) };
    lines.len()
}
