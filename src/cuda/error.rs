//! What goes wrong on a GPU.

use std::borrow::Cow;
use std::fmt;

use triton_backend_api::{Error, ErrorCode};

/// A result of the driver's.
pub type Result<T> = std::result::Result<T, CudaError>;

/// An error of the GPU's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CudaError {
    /// There is no driver that can be used.
    NoDriver(Cow<'static, str>),
    /// There is no such GPU, or it is too old.
    NoDevice(String),
    /// A call of the driver's failed.
    Driver {
        /// What it was made for.
        step: &'static str,
        /// Its name.
        call: &'static str,
        /// The driver's error number.
        code: u32,
        /// The driver's own words.
        text: String,
    },
    /// There is not enough memory.
    OutOfMemory {
        /// What it was wanted for.
        step: &'static str,
        /// The call that failed.
        call: &'static str,
        /// How many bytes were wanted.
        wanted: usize,
        /// How many bytes the device has free; `None` for the host's memory.
        free: Option<usize>,
    },
    /// The instance met an error that its context does not recover from.
    Broken(String),
}

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(super) const OUT_OF_MEMORY: u32 = 2;

/// Errors after which every call in the context fails: those of which cuda.h says that "the process must be terminated and
/// relaunched" (a test compares), and four of which it says less: uncorrectable errors of memory and of NVLink, an assertion, and a
/// context that is destroyed.
const STICKY: [u32; 16] = [
    214, // ECC_UNCORRECTABLE
    220, // NVLINK_UNCORRECTABLE
    226, // CONTAINED, of CUDA 12.8 and later
    700, // ILLEGAL_ADDRESS
    702, // LAUNCH_TIMEOUT
    709, // CONTEXT_IS_DESTROYED
    710, // ASSERT
    714, // HARDWARE_STACK_ERROR
    715, // ILLEGAL_INSTRUCTION
    716, // MISALIGNED_ADDRESS
    717, // INVALID_ADDRESS_SPACE
    718, // INVALID_PC
    719, // LAUNCH_FAILED
    721, // TENSOR_MEMORY_LEAK, of CUDA 12.8 and later
    810, // MPS_CLIENT_TERMINATED
    911, // EXTERNAL_DEVICE
];

impl CudaError {
    pub(super) fn no_driver(why: impl Into<Cow<'static, str>>) -> Self {
        Self::NoDriver(why.into())
    }

    /// Whether no later call can succeed.
    pub fn is_sticky(&self) -> bool {
        matches!(self, Self::Driver { code, .. } if STICKY.contains(code))
    }

    /// As the server has it.
    pub fn into_error(self) -> Error {
        let code = match &self {
            Self::NoDriver(_) | Self::NoDevice(_) => ErrorCode::Unsupported,
            Self::OutOfMemory { .. } | Self::Broken(_) => ErrorCode::Unavailable,
            Self::Driver { .. } => ErrorCode::Internal,
        };
        Error::new(code, self.to_string())
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver(why) => write!(f, "no usable NVIDIA driver: {why}"),
            Self::NoDevice(why) => f.write_str(why),
            Self::Driver { step, call, text, .. } => write!(f, "{step}: {call} failed: {text}"),
            Self::OutOfMemory { step, call, wanted, free: Some(free) } => {
                write!(f, "{step}: {call}: out of GPU memory: {wanted} bytes wanted, {free} bytes free")
            }
            Self::OutOfMemory { step, call, wanted, free: None } => {
                write!(f, "{step}: {call}: out of pinned host memory: {wanted} bytes wanted")
            }
            Self::Broken(why) => write!(f, "the instance needs a reload: {why}"),
        }
    }
}
