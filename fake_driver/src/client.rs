//! The tests' side: loads the shared object in place of libcuda, and steers it.

use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use libloading::Library;

/// The loaded driver, reset to what a test wants. While one lives, no other does: others wait for it.
pub struct FakeDriver {
    _turn: Option<MutexGuard<'static, ()>>,
}

static TURN: Mutex<()> = Mutex::new(());

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    // Beside the test's executable, where cargo puts the libraries of what it depends on.
    let executable = std::env::current_exe().unwrap_or_default();
    let path = executable.with_file_name("libfake_driver.so");
    // SAFETY: this package's own shared object, which does nothing when it is loaded.
    match unsafe { Library::new(&path) } {
        Ok(library) => library,
        Err(e) => panic!("{}: {e}", path.display()),
    }
});

/// A function of the shared object.
fn function<F: Copy>(name: &str) -> F {
    // SAFETY: named and typed as in `control`.
    match unsafe { LIBRARY.get::<F>(name.as_bytes()) } {
        Ok(function) => *function,
        Err(e) => panic!("{name}: {e}"),
    }
}

/// Loads it, for tests that all use one driver as it is.
pub fn load() {
    LazyLock::force(&LIBRARY);
}

impl FakeDriver {
    /// A driver with so many GPUs of compute capability 8.6, 8 GiB each.
    pub fn new(devices: usize) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        function::<extern "C" fn(usize)>("fake_driver_reset")(devices);
        Self { _turn: Some(turn) }
    }

    /// For tests that run on the CPU beside one that has the driver: it is not reset.
    pub fn unused() -> Self {
        Self { _turn: None }
    }

    /// Sets a GPU's compute capability (86 for 8.6) and memory.
    pub fn device(&self, device: i32, capability: i32, byte_size: usize) {
        function::<extern "C" fn(c_int, c_int, usize)>("fake_driver_device")(device, capability, byte_size);
    }

    /// Sets the driver's version: 11080 for 11.8.
    pub fn version(&self, version: i32) {
        function::<extern "C" fn(c_int)>("fake_driver_version")(version);
    }

    /// Makes the next calls of a function fail. "run NAME" is a kernel's run, which fails where it is waited for.
    pub fn fail(&self, call: &str, after: usize, times: usize, code: u32) {
        let fail = function::<extern "C" fn(*const u8, usize, usize, usize, u32)>("fake_driver_fail");
        fail(call.as_ptr(), call.len(), after, times, code);
    }

    /// Lets all calls go well again.
    pub fn heal(&self) {
        function::<extern "C" fn()>("fake_driver_heal")();
    }

    /// Refuses modules whose image begins so.
    pub fn refuse_images(&self, head: &[u8]) {
        function::<extern "C" fn(*const u8, usize)>("fake_driver_refuse_images")(head.as_ptr(), head.len());
    }

    /// How often a function was called, a kernel ran ("run NAME"), or machine code or PTX was given ("load sm_86", "load compute_70").
    pub fn calls(&self, call: &str) -> usize {
        function::<extern "C" fn(*const u8, usize) -> usize>("fake_driver_calls")(call.as_ptr(), call.len())
    }

    /// Memory of a GPU, as another library of the process would have it; 0 where there is none left.
    pub fn allocate(device: i32, byte_size: usize) -> u64 {
        function::<extern "C" fn(c_int, usize) -> u64>("fake_driver_allocate")(device, byte_size)
    }

    /// Gives memory of [`allocate`] back.
    pub fn free(base: u64) {
        function::<extern "C" fn(u64)>("fake_driver_free")(base);
    }

    /// Memory of a GPU that holds these bytes, as another library of the process would have it.
    pub fn memory(&self, device: i32, bytes: &[u8]) -> Foreign {
        memory(device, bytes)
    }

    /// How many bytes of a GPU's memory are in use.
    pub fn used(&self, device: i32) -> usize {
        function::<extern "C" fn(c_int) -> usize>("fake_driver_used")(device)
    }

    /// How many contexts are on this thread's stack.
    pub fn current_contexts(&self) -> usize {
        function::<extern "C" fn() -> usize>("fake_driver_current")()
    }

    /// What was done wrong.
    pub fn violations(&self) -> String {
        violations()
    }

    /// Fails the test for what was done wrong, and for what is left.
    #[track_caller]
    pub fn check(&self) {
        let (violations, left) = (report(false), report(true));
        assert!(violations.is_empty(), "done wrong:\n{violations}");
        assert!(left.is_empty(), "left:\n{left}");
    }
}

/// What was done wrong since the driver was loaded or reset.
pub fn violations() -> String {
    report(false)
}

fn report(left: bool) -> String {
    let report = function::<extern "C" fn(bool, *mut u8, usize) -> usize>("fake_driver_report");
    let mut room = vec![0; report(left, std::ptr::null_mut(), 0)];
    let size = report(left, room.as_mut_ptr(), room.len()).min(room.len());
    room.truncate(size);
    String::from_utf8_lossy(&room).into_owned()
}

/// Memory of a GPU, as another library of the process would have it; 0 where there is none left.
pub fn allocate(device: i32, byte_size: usize) -> u64 {
    function::<extern "C" fn(c_int, usize) -> u64>("fake_driver_allocate")(device, byte_size)
}

/// Gives memory of [`allocate`] back.
pub fn free(base: u64) {
    function::<extern "C" fn(u64)>("fake_driver_free")(base);
}

/// Memory of a GPU that holds these bytes, as another library of the process would have it.
pub fn memory(device: i32, bytes: &[u8]) -> Foreign {
    let memory = Foreign { base: allocate(device, bytes.len()), byte_size: bytes.len() };
    memory.write(bytes);
    memory
}

/// GPU memory that is not the backend's.
pub struct Foreign {
    base: u64,
    byte_size: usize,
}

impl Foreign {
    /// Its address.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Its size.
    pub fn byte_size(&self) -> usize {
        self.byte_size
    }

    /// Its bytes now. Work on it that still waits to run is a violation.
    pub fn bytes(&self) -> Vec<u8> {
        read(self.base, self.byte_size)
    }

    /// Sets its bytes. Work on it that still waits to run is a violation.
    pub fn write(&self, bytes: &[u8]) {
        write(self.base, bytes);
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        free(self.base);
    }
}

/// Reads GPU memory as another library would.
pub fn read(base: u64, byte_size: usize) -> Vec<u8> {
    let mut bytes = vec![0; byte_size];
    touch(base, bytes.as_mut_ptr(), byte_size, false);
    bytes
}

/// Writes GPU memory as another library would.
pub fn write(base: u64, bytes: &[u8]) {
    touch(base, bytes.as_ptr().cast_mut(), bytes.len(), true);
}

fn touch(base: u64, host: *mut u8, byte_size: usize, write: bool) {
    let touch = function::<extern "C" fn(u64, *mut u8, usize, bool) -> bool>("fake_driver_touch");
    assert!(touch(base, host, byte_size, write), "{byte_size} bytes at {base:#x} are no live GPU memory");
}
