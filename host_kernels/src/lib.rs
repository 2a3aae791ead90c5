//! The CUDA kernels compiled for the host. Every thread of a block is a fiber; the order of threads and blocks comes from a
//! seed, so a result that depends on it shows. For tests only.

mod compile;

use std::env;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::LazyLock;

use libloading::Library;

/// Names the library to load instead of the plain one.
const LIBRARY: &str = "HOST_KERNELS_LIBRARY";

/// A checker of memory or order that the kernels can be compiled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sanitizer {
    /// AddressSanitizer and UndefinedBehaviorSanitizer.
    Address,
    /// ThreadSanitizer: within a block and between blocks.
    Thread,
}

impl Sanitizer {
    /// Compiles the kernels with it, into `folder`, and returns the environment of a process in which [`find`] gives
    /// them. `compiler_file` says where a file of the compiler is: the runtime has to be in the process before all else.
    pub fn build(
        self,
        folder: &Path,
        compiler_file: impl Fn(&str) -> String,
    ) -> Result<[(&'static str, String); 5], String> {
        let (name, runtime, kernels, fibers): (_, _, &[_], &[_]) = match self {
            Self::Address => (
                "address",
                "libasan.so",
                &["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
                &["-fsanitize=address"],
            ),
            // The scheduler is the order itself and not subject to it.
            Self::Thread => ("thread", "libtsan.so", &["-fsanitize=thread"], &["-DHOST_KERNELS_TSAN"]),
        };
        let library = compile::compile(Path::new(env!("CARGO_MANIFEST_DIR")), folder, name, kernels, fibers)?;
        Ok([
            (LIBRARY, library.display().to_string()),
            ("LD_PRELOAD", compiler_file(runtime)),
            // What the test program itself leaves behind is not the kernels'.
            ("ASAN_OPTIONS", "detect_leaks=0".to_owned()),
            ("UBSAN_OPTIONS", "print_stacktrace=1".to_owned()),
            (
                "TSAN_OPTIONS",
                "halt_on_error=1:report_thread_leaks=0:ignore_noninstrumented_modules=1".to_owned(),
            ),
        ])
    }
}

/// In which order threads and blocks go on.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// 0 is their own order, 1 the reverse; all others are by chance, with changes at every access that others may see.
    pub seed: u64,
    /// Blocks at a time, each on a thread of the host.
    pub workers: u32,
}

impl Default for Order {
    fn default() -> Self {
        Self { seed: 0, workers: 1 }
    }
}

type Find = unsafe extern "C" fn(*const c_char) -> c_int;
type ArgumentBytes = unsafe extern "C" fn(c_int) -> usize;
type Run = unsafe extern "C" fn(c_int, u32, u32, u32, *const c_void, u64, u32, *mut c_char, usize) -> c_int;

struct Functions {
    find: Find,
    argument_bytes: ArgumentBytes,
    run: Run,
    // The functions are its own.
    _library: Library,
}

static FUNCTIONS: LazyLock<Result<Functions, String>> = LazyLock::new(|| {
    let path = env::var(LIBRARY).unwrap_or_else(|_| env!("HOST_KERNELS_PLAIN").to_owned());
    load(&path).map_err(|error| format!("{path}: {error}"))
});

fn load(path: &str) -> Result<Functions, libloading::Error> {
    // SAFETY: the library is the one that the build script made; these are its functions, with the types of table.cpp.
    unsafe {
        let library = Library::new(path)?;
        Ok(Functions {
            find: *library.get::<Find>(b"host_kernels_find\0")?,
            argument_bytes: *library.get::<ArgumentBytes>(b"host_kernels_argument_bytes\0")?,
            run: *library.get::<Run>(b"host_kernels_run\0")?,
            _library: library,
        })
    }
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    number: c_int,
    name: String,
    argument_bytes: usize,
}

/// The kernel of this name; an error says why there are none at all.
pub fn find(name: &str) -> Result<Option<Kernel>, String> {
    let functions = FUNCTIONS.as_ref().map_err(String::clone)?;
    let Ok(c_name) = CString::new(name) else { return Ok(None) };
    // SAFETY: the name ends with a 0.
    let number = unsafe { (functions.find)(c_name.as_ptr()) };
    if number < 0 {
        return Ok(None);
    }
    // SAFETY: the number is one that was found.
    let argument_bytes = unsafe { (functions.argument_bytes)(number) };
    Ok(Some(Kernel { number, name: name.to_owned(), argument_bytes }))
}

impl Kernel {
    /// Its name in the machine code.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The size of its only parameter.
    pub fn argument_bytes(&self) -> usize {
        self.argument_bytes
    }

    /// Runs all blocks. The error is that of threads which wait for what never comes or exchange with whom they must not.
    ///
    /// # Safety
    /// The addresses in `arguments` are those of memory that is as large as the kernel takes it to be.
    pub unsafe fn run(
        &self,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        arguments: &[u8],
        order: Order,
    ) -> Result<(), String> {
        let functions = FUNCTIONS.as_ref().map_err(String::clone)?;
        if arguments.len() != self.argument_bytes {
            let (name, found, size) = (&self.name, arguments.len(), self.argument_bytes);
            return Err(format!("{name} takes {size} bytes of arguments, not {found}"));
        }
        let ([grid, 1, 1], [block @ 1..=1024, 1, 1]) = (grid, block) else {
            return Err(format!("a grid of {grid:?} blocks of {block:?} threads; the kernels use x alone"));
        };
        let mut error = vec![0u8; 512];
        // SAFETY: the number was found, the arguments are as long as the kernel's, and the error has the size that is
        // told; the memory is the caller's promise.
        let failed = unsafe {
            (functions.run)(
                self.number,
                grid,
                block,
                shared_bytes,
                arguments.as_ptr().cast(),
                order.seed,
                order.workers,
                error.as_mut_ptr().cast(),
                error.len(),
            )
        };
        if failed == 0 {
            return Ok(());
        }
        error.truncate(error.iter().position(|byte| *byte == 0).unwrap_or(error.len()));
        Err(String::from_utf8_lossy(&error).into_owned())
    }
}
