//! What a module's image was made for, and which GPUs take it.

use std::ffi::{CStr, c_char};
use std::fmt;

/// By compute capability: 86 for 8.6; 0 where an image does not say.
pub enum Image {
    MachineCode(i32),
    Ptx(i32),
}

impl Image {
    /// # Safety
    /// `base` is machine code, an ELF file, or text that ends with a NUL.
    pub unsafe fn read(base: *const c_char) -> Self {
        // SAFETY: the caller's promise; an ELF file begins with a header of 64 bytes, and PTX is longer than 4.
        unsafe {
            if std::slice::from_raw_parts(base.cast::<u8>(), 4) == b"\x7fELF" {
                return Self::of_header(std::slice::from_raw_parts(base.cast::<u8>(), 64));
            }
            let text = CStr::from_ptr(base).to_string_lossy();
            let target = text.split_once(".target sm_").map_or("", |(_, rest)| rest);
            let digits = target.split(|c: char| !c.is_ascii_digit()).next();
            Self::Ptx(digits.and_then(|digits| digits.parse().ok()).unwrap_or(0))
        }
    }

    /// The flags name the architecture: since version 8 of the ABI in their second byte, before in their first.
    fn of_header(header: &[u8]) -> Self {
        let (abi_version, flags) = (header[8], &header[48..52]);
        Self::MachineCode(i32::from(if abi_version >= 8 { flags[1] } else { flags[0] }))
    }

    /// Machine code runs within its major version, from its own minor one on; the driver compiles PTX for all later GPUs.
    pub fn runs_on(&self, capability: i32) -> bool {
        match *self {
            Self::MachineCode(made_for) => made_for / 10 == capability / 10 && made_for <= capability,
            Self::Ptx(made_for) => made_for != 0 && made_for <= capability,
        }
    }
}

/// `sm_86`, or `compute_70`.
impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MachineCode(made_for) => write!(f, "sm_{made_for}"),
            Self::Ptx(made_for) => write!(f, "compute_{made_for}"),
        }
    }
}
