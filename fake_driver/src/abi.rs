//! The driver's functions, as programs call them.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::image::Image;
use crate::kernels;
use crate::memory::Place;
use crate::state::*;

/// Defines functions of the ABI: each is counted, can be made to fail, and answers with the number of its error.
macro_rules! symbols {
    ($(fn $name:ident($($argument:ident: $type:ty),*) |$state:ident| $body:block)*) => { $(
        /// See the driver's documentation.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            let mut guard = lock();
            let $state: &mut State = &mut guard;
            #[allow(unused_unsafe)] // not every body needs it
            let outcome: Outcome = $state.enter(stringify!($name)).and_then(|()| {
                // SAFETY: called as the driver's documentation says.
                unsafe { $body }
            });
            outcome.err().unwrap_or(0)
        }
    )* };
}

unsafe fn put<T>(place: *mut T, value: T) -> Outcome {
    if place.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's place, live.
    unsafe { place.write(value) };
    Ok(())
}

symbols! {
    fn cuInit(flags: c_uint) |state| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        if state.devices.is_empty() {
            return Err(NO_DEVICE);
        }
        state.initialized = true;
        Ok(())
    }

    fn cuDriverGetVersion(version: *mut c_int) |state| { put(version, state.version) }

    fn cuDeviceGetCount(count: *mut c_int) |state| { put(count, state.devices.len() as c_int) }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) |state| {
        state.devices.get(ordinal as usize).ok_or(INVALID_DEVICE)?;
        put(device, ordinal)
    }

    fn cuDeviceGetName(name: *mut c_char, room: c_int, device: c_int) |state| {
        state.devices.get(device as usize).ok_or(INVALID_DEVICE)?;
        let text = format!("Emulated GPU {device}\0");
        let count = text.len().min(room as usize);
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, count);
        Ok(())
    }

    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) |state| {
        let device = state.devices.get(device as usize).ok_or(INVALID_DEVICE)?;
        let found = match attribute {
            75 => device.capability / 10,
            76 => device.capability % 10,
            16 => 3, // multiprocessors
            _ => return Err(INVALID_VALUE),
        };
        put(value, found)
    }

    fn cuDevicePrimaryCtxRetain(context: *mut u64, device: c_int) |state| {
        let found = state.devices.get_mut(device as usize).ok_or(INVALID_DEVICE)?;
        if let Some(code) = found.broken {
            return Err(code);
        }
        found.retained += 1;
        put(context, device as u64 + 1)
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) |state| {
        let found = state.devices.get_mut(device as usize).ok_or(INVALID_DEVICE)?;
        if found.retained == 0 {
            state.violation(format!("the primary context of GPU {device} was released more often than retained"));
            return Err(INVALID_CONTEXT);
        }
        found.retained -= 1;
        Ok(())
    }

    fn cuCtxPushCurrent_v2(context: u64) |state| {
        state.devices.get((context as usize).wrapping_sub(1)).ok_or(INVALID_CONTEXT)?;
        CURRENT.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: *mut u64) |state| {
        match CURRENT.with_borrow_mut(Vec::pop) {
            Some(popped) => {
                if CURRENT.with_borrow(Vec::is_empty) && CAPTURE_MODE.get() != GLOBAL {
                    state.violation("the thread's mode of stream capture was not set back".to_owned());
                }
                put(context, popped)
            }
            None => {
                state.violation("a context was popped where none was pushed".to_owned());
                Err(INVALID_CONTEXT)
            }
        }
    }

    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) |state| {
        if mode.is_null() || *mode > RELAXED {
            return Err(INVALID_VALUE);
        }
        put(mode, CAPTURE_MODE.replace(*mode))
    }

    fn cuModuleLoadData(module: *mut u64, image: *const c_void) |state| {
        let device = state.current("cuModuleLoadData")?;
        let head = std::slice::from_raw_parts(image.cast::<u8>(), 4);
        let refused = state.refused_images.iter().any(|refused| head.starts_with(refused));
        let image = Image::read(image.cast());
        state.enter(&format!("load {image}"))?;
        if refused || !image.runs_on(state.devices[device as usize].capability) {
            return Err(NO_BINARY_FOR_GPU);
        }
        let handle = state.handle();
        state.modules.insert(handle, device);
        put(module, handle)
    }

    fn cuModuleUnload(module: u64) |state| {
        let known = state.modules.remove(&module).is_some();
        state.current("cuModuleUnload")?;
        if known { Ok(()) } else { Err(INVALID_HANDLE) }
    }

    fn cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char) |state| {
        state.current("cuModuleGetFunction")?;
        state.modules.get(&module).ok_or(INVALID_HANDLE)?;
        let name = CStr::from_ptr(name).to_string_lossy();
        let kernel = kernels::find(&name).ok_or(NOT_FOUND)?;
        let handle = state.handle();
        state.functions.insert(handle, kernel);
        put(function, handle)
    }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |state| {
        let device = state.current("cuMemGetInfo")?;
        let size = state.devices[device as usize].byte_size;
        put(free, size.saturating_sub(state.used(device)))?;
        put(total, size)
    }

    fn cuMemAlloc_v2(pointer: *mut u64, byte_size: usize) |state| {
        let device = state.current("cuMemAlloc")?;
        if byte_size == 0 {
            return Err(INVALID_VALUE);
        }
        put(pointer, state.allocate(byte_size, Place::Device(device))?)
    }

    fn cuMemFree_v2(pointer: u64) |state| {
        let broken = state.current("cuMemFree");
        state.free("cuMemFree", pointer)?;
        broken.map(drop)
    }

    fn cuMemHostAlloc(pointer: *mut u64, byte_size: usize, flags: c_uint) |state| {
        state.current("cuMemHostAlloc")?;
        if byte_size == 0 || flags > 7 {
            return Err(INVALID_VALUE);
        }
        put(pointer, state.allocate(byte_size, Place::Pinned)?)
    }

    fn cuMemFreeHost(pointer: u64) |state| {
        let broken = state.current("cuMemFreeHost");
        state.free("cuMemFreeHost", pointer)?;
        broken.map(drop)
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, byte_size: usize, stream: u64) |state| {
        state.check_range("cuMemcpyHtoDAsync", to, byte_size, true)?;
        state.check_range("cuMemcpyHtoDAsync", from, byte_size, false)?;
        state.push("cuMemcpyHtoDAsync", stream, Work::Copy { to, from, byte_size })
    }

    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, byte_size: usize, stream: u64) |state| {
        state.check_range("cuMemcpyDtoHAsync", to, byte_size, false)?;
        state.check_range("cuMemcpyDtoHAsync", from, byte_size, true)?;
        state.push("cuMemcpyDtoHAsync", stream, Work::Copy { to, from, byte_size })
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, byte_size: usize, stream: u64) |state| {
        let device = state.current("cuMemcpyDtoDAsync")?;
        for address in [to, from] {
            state.check_range("cuMemcpyDtoDAsync", address, byte_size, true)?;
            let place = state.allocation(address).map(|found| found.place);
            if place != Some(Place::Device(device)) {
                state.violation(format!("cuMemcpyDtoDAsync of {place:?} with the context of GPU {device}"));
            }
        }
        state.push("cuMemcpyDtoDAsync", stream, Work::Copy { to, from, byte_size })
    }

    fn cuMemcpyPeerAsync(
        to: u64, to_context: u64, from: u64, from_context: u64, byte_size: usize, stream: u64
    ) |state| {
        for (address, context) in [(to, to_context), (from, from_context)] {
            state.check_range("cuMemcpyPeerAsync", address, byte_size, true)?;
            let place = state.allocation(address).map(|found| found.place);
            if place != Some(Place::Device(context as i32 - 1)) {
                state.violation(format!("cuMemcpyPeerAsync of {place:?} as memory of context {context}"));
            }
            if state.devices.get(context as usize - 1).is_none_or(|device| device.retained == 0) {
                state.violation("cuMemcpyPeerAsync with a context that is not retained".to_owned());
            }
        }
        state.push("cuMemcpyPeerAsync", stream, Work::Copy { to, from, byte_size })
    }

    fn cuMemsetD8Async(to: u64, value: u8, byte_size: usize, stream: u64) |state| {
        state.check_range("cuMemsetD8Async", to, byte_size, true)?;
        state.push("cuMemsetD8Async", stream, Work::Set { to, value, byte_size })
    }

    fn cuStreamCreate(stream: *mut u64, flags: c_uint) |state| {
        let device = state.current("cuStreamCreate")?;
        if flags != 1 {
            state.violation("a stream that waits for the default stream was made".to_owned());
        }
        let handle = state.handle();
        state.streams.insert(handle, Stream { device, waiting: Default::default() });
        put(stream, handle)
    }

    fn cuStreamDestroy_v2(stream: u64) |state| {
        let drained = state.run(stream, None);
        state.streams.remove(&stream).ok_or(INVALID_HANDLE)?;
        drained
    }

    fn cuStreamSynchronize(stream: u64) |state| {
        state.current("cuStreamSynchronize")?;
        state.streams.get(&stream).ok_or(INVALID_HANDLE)?;
        state.run(stream, None)
    }

    fn cuEventCreate(event: *mut u64, flags: c_uint) |state| {
        state.current("cuEventCreate")?;
        let handle = state.handle();
        state.events.insert(handle, Event { timed: flags & 2 == 0, ..Event::default() });
        put(event, handle)
    }

    fn cuEventDestroy_v2(event: u64) |state| {
        if state.events.remove(&event).is_none() {
            state.violation(format!("event {event:#x} was destroyed twice, or never made"));
            return Err(INVALID_HANDLE);
        }
        Ok(())
    }

    fn cuEventRecord(event: u64, stream: u64) |state| {
        let number = state.now();
        state.events.get(&event).ok_or(INVALID_HANDLE)?;
        state.push("cuEventRecord", stream, Work::Record { event, number })?;
        if let Some(event) = state.events.get_mut(&event) {
            event.recorded = Some((stream, number));
        }
        Ok(())
    }

    fn cuEventSynchronize(event: u64) |state| {
        state.current("cuEventSynchronize")?;
        let found = *state.events.get(&event).ok_or(INVALID_HANDLE)?;
        match found.recorded {
            Some((stream, number)) if found.come.is_none_or(|(come, _)| come != number) => {
                state.run(stream, Some((event, number)))
            }
            _ => Ok(()),
        }
    }

    fn cuEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64) |state| {
        let time = |event: Option<&Event>| -> Outcome<u64> {
            let event = event.ok_or(INVALID_HANDLE)?;
            match (event.timed, event.recorded, event.come) {
                (true, Some((_, wanted)), Some((come, at))) if wanted == come => Ok(at),
                (true, Some(_), _) => Err(NOT_READY),
                _ => Err(INVALID_HANDLE),
            }
        };
        let (start, end) = (time(state.events.get(&start))?, time(state.events.get(&end))?);
        put(milliseconds, end.saturating_sub(start) as f32 / 1e6)
    }

    fn cuLaunchKernel(
        function: u64, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: u64, parameters: *mut *mut c_void, extra: *mut *mut c_void
    ) |state| {
        let device = state.current("cuLaunchKernel")?;
        let kernel = state.functions.get(&function).cloned().ok_or(INVALID_HANDLE)?;
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let threads = block.iter().map(|size| u64::from(*size)).product::<u64>();
        if threads == 0 || threads > 1024 || grid.contains(&0) || grid_y > 65535 || grid_z > 65535 || shared > 48 << 10 {
            state.violation(format!("kernel {}: grid {grid:?}, block {block:?}, {shared} bytes", kernel.name()));
            return Err(INVALID_VALUE);
        }
        if !parameters.is_null() || extra.is_null() {
            state.violation(format!("kernel {}: its parameters came without their size", kernel.name()));
            return Err(INVALID_VALUE);
        }
        let extra = std::slice::from_raw_parts(extra, 5);
        let shape = [extra[0] as usize, extra[2] as usize, extra[4] as usize];
        let byte_size = if shape == [1, 2, 0] { *extra[3].cast::<usize>() } else { 0 };
        if byte_size != kernel.argument_bytes() {
            let (name, wanted) = (kernel.name(), kernel.argument_bytes());
            state.violation(format!("kernel {name}: {byte_size} bytes of parameters came; it takes {wanted}"));
            return Err(INVALID_VALUE);
        }
        let arguments = std::slice::from_raw_parts(extra[1].cast::<u8>(), byte_size).to_vec();
        state.check_pointers(device, kernel.name(), &arguments)?;
        state.push("cuLaunchKernel", stream, Work::Launch { kernel, grid, block, shared, arguments })
    }
}

/// Texts of the errors that tests look for; the others have none here.
fn describe(code: u32) -> Option<(&'static CStr, &'static CStr)> {
    Some(match code {
        1 => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
        2 => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        100 => (c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
        209 => (c"CUDA_ERROR_NO_BINARY_FOR_GPU", c"no kernel image is available for execution on the device"),
        700 => (c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
        719 => (c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
        _ => return None,
    })
}

/// See the driver's documentation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: u32, text: *mut *const c_char) -> u32 {
    let Some((name, _)) = describe(code) else { return INVALID_VALUE };
    // SAFETY: the caller's place.
    unsafe { put(text, name.as_ptr()) }.err().unwrap_or(0)
}

/// See the driver's documentation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: u32, text: *mut *const c_char) -> u32 {
    let Some((_, words)) = describe(code) else { return INVALID_VALUE };
    // SAFETY: the caller's place.
    unsafe { put(text, words.as_ptr()) }.err().unwrap_or(0)
}
