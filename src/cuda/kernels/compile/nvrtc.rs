//! NVIDIA's compiler for device code, a library that needs no GPU.

use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use libloading::Library;

type Program = *mut c_void;

/// One version of it.
pub struct Nvrtc(Library);

/// What to compile.
pub struct Source<'s> {
    /// The file that includes the others.
    pub main: &'s str,
    /// All files, by the names under which they are included.
    pub files: &'s [(String, String)],
}

/// What comes out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// Machine code.
    Cubin,
    /// Text that a driver compiles, with a NUL at its end.
    Ptx,
}

impl Nvrtc {
    pub fn open(library: &Path) -> Result<Self, Box<dyn Error>> {
        // SAFETY: NVRTC's library; its initialisers need nothing.
        Ok(Self(unsafe { Library::new(library) }.map_err(|error| format!("{}: {error}", library.display()))?))
    }

    /// Compiles for an architecture; an error holds the compiler's own report.
    pub fn compile(
        &self,
        source: &Source<'_>,
        options: &[&str],
        product: Product,
    ) -> Result<Vec<u8>, Box<dyn Error>> {
        let text = |text: &str| CString::new(text);
        let body = source
            .files
            .iter()
            .find(|(name, _)| name == source.main)
            .ok_or("the main file is not among them")?;
        let (main, body) = (text(source.main)?, text(&body.1)?);
        let names = source.files.iter().map(|(name, _)| text(name)).collect::<Result<Vec<_>, _>>()?;
        let bodies = source.files.iter().map(|(_, body)| text(body)).collect::<Result<Vec<_>, _>>()?;
        let options = options.iter().map(|option| text(option)).collect::<Result<Vec<_>, _>>()?;
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let (names, bodies, option_pointers) = (pointers(&names), pointers(&bodies), pointers(&options));

        type Texts = *const *const c_char;
        type Create =
            unsafe extern "C" fn(*mut Program, *const c_char, *const c_char, c_int, Texts, Texts) -> c_int;
        type Compile = unsafe extern "C" fn(Program, c_int, Texts) -> c_int;
        type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;
        let count = |texts: &[*const c_char]| c_int::try_from(texts.len());
        let mut program: Program = ptr::null_mut();
        // SAFETY: these are the functions of NVRTC's documentation, with its types. All texts end with a NUL and outlive
        // the calls, and the counts are theirs. The program is created before it is used and destroyed after.
        unsafe {
            let create = self.0.get::<Create>(b"nvrtcCreateProgram\0")?;
            self.check(create(
                &mut program,
                body.as_ptr(),
                main.as_ptr(),
                count(&names)?,
                bodies.as_ptr(),
                names.as_ptr(),
            ))?;
            let compile = self.0.get::<Compile>(b"nvrtcCompileProgram\0")?;
            let compiled = self.check(compile(program, count(&option_pointers)?, option_pointers.as_ptr()));
            let result = match compiled {
                Ok(()) if product == Product::Cubin => {
                    self.bytes(program, b"nvrtcGetCUBINSize\0", b"nvrtcGetCUBIN\0")
                }
                Ok(()) => self.bytes(program, b"nvrtcGetPTXSize\0", b"nvrtcGetPTX\0"),
                Err(error) => {
                    let report = self.bytes(program, b"nvrtcGetProgramLogSize\0", b"nvrtcGetProgramLog\0")?;
                    let report = String::from_utf8_lossy(&report).trim_end_matches('\0').to_owned();
                    Err(format!("{error}\n{report}").into())
                }
            };
            self.check(self.0.get::<Destroy>(b"nvrtcDestroyProgram\0")?(&mut program))?;
            result
        }
    }

    /// # Safety
    /// `program` exists, and the two functions are one of NVRTC's pairs that tell a size and then fill that many bytes.
    unsafe fn bytes(&self, program: Program, size_of: &[u8], get: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
        type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
        type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
        let mut size = 0;
        // SAFETY: the caller's promise; the bytes are as many as the first function has said.
        unsafe {
            self.check(self.0.get::<Size>(size_of)?(program, &mut size))?;
            let mut bytes = vec![0; size];
            self.check(self.0.get::<Get>(get)?(program, bytes.as_mut_ptr().cast()))?;
            Ok(bytes)
        }
    }

    fn check(&self, status: c_int) -> Result<(), Box<dyn Error>> {
        type Text = unsafe extern "C" fn(c_int) -> *const c_char;
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the function takes any number and returns a text that lives as long as the library.
        let text = unsafe { CStr::from_ptr(self.0.get::<Text>(b"nvrtcGetErrorString\0")?(status)) };
        Err(text.to_string_lossy().into_owned().into())
    }
}
