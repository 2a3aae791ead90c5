//! A GPU as a machine, through the driver: the real one, or the emulated one.

use std::cell::RefCell;
use std::fmt;

use triton_backend_api as api;
use triton_spleenseg::cuda::queue::{DeviceSpan, Launch, Queue};
use triton_spleenseg::cuda::{DeviceMemory, Gpu, Session};

use crate::machine::Machine;

/// What lies before and behind each buffer, and must stay.
const GUARD: usize = 256;

const STEP: &str = "test";

/// How a GPU is used.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Threads of a block: 256 at most, which always fit.
    pub block: u32,
    /// No more blocks than on so many multiprocessors; 0 for the GPU's own.
    pub multiprocessors: u32,
    /// What memory holds before it is written.
    pub poison: u8,
    /// How far behind an address of 256 each buffer begins: a multiple of 8.
    pub skew: usize,
}

impl Manner {
    /// Different ones, for tests that take them in turn. The first is how requests use it.
    pub const ALL: [Self; 5] = [
        Self { block: 256, multiprocessors: 0, poison: 0xA5, skew: 0 },
        Self { block: 32, multiprocessors: 0, poison: 0x5A, skew: 8 },
        Self { block: 128, multiprocessors: 1, poison: 0xFF, skew: 0 },
        Self { block: 64, multiprocessors: 0, poison: 0x00, skew: 8 },
        Self { block: 96, multiprocessors: 7, poison: 0x7F, skew: 16 },
    ];
}

/// A GPU while one thread uses it.
pub struct Driver<'g> {
    session: Session<'g>,
    gpu: &'g Gpu,
    manner: Manner,
    /// Writes beside buffers.
    strays: RefCell<Vec<String>>,
}

impl<'g> Driver<'g> {
    pub fn new(gpu: &'g Gpu, manner: Manner) -> api::Result<Self> {
        Ok(Self { session: gpu.session()?, gpu, manner, strays: RefCell::default() })
    }

    /// # Errors
    /// Kernels wrote beside the buffers that have been given back.
    pub fn check(&self) -> Result<(), String> {
        let strays = self.strays.take();
        if strays.is_empty() { Ok(()) } else { Err(strays.join("; ")) }
    }
}

impl fmt::Debug for Driver<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}", self.gpu.image(), self.manner)
    }
}

impl Queue for Driver<'_> {
    unsafe fn launch(&self, launch: &Launch<'_>) -> api::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.session.launch(launch) }
    }

    fn fill(&self, span: DeviceSpan<'_>, byte: u8) -> api::Result<()> {
        self.session.fill(span, byte)
    }

    fn copy(&self, from: DeviceSpan<'_>, to: DeviceSpan<'_>) -> api::Result<()> {
        self.session.copy(from, to)
    }

    fn multiprocessors(&self) -> u32 {
        match self.manner.multiprocessors {
            0 => self.session.multiprocessors(),
            few => few.min(self.session.multiprocessors()),
        }
    }

    fn block(&self) -> u32 {
        self.manner.block
    }
}

/// A buffer between guards.
pub struct Guarded<'m> {
    memory: DeviceMemory,
    start: usize,
    byte_size: usize,
    machine: &'m Driver<'m>,
}

impl Guarded<'_> {
    fn span(&self) -> DeviceSpan<'_> {
        self.memory.span().part(self.start, self.byte_size).unwrap()
    }

    /// Which bytes beside it were written, if any.
    fn strays(&self) -> Option<String> {
        let (all, end) = (self.memory.span(), self.start + self.byte_size);
        let poison = self.machine.manner.poison;
        for (name, start, end) in [("before", 0, self.start), ("behind", end, all.bytes())] {
            let guard = match all.part(start, end - start) {
                Ok(guard) => self.machine.session.receive(guard, STEP),
                Err(error) => Err(error),
            };
            match guard {
                Ok(bytes) => {
                    if let Some(at) = bytes.iter().position(|byte| *byte != poison) {
                        let size = self.byte_size;
                        return Some(format!("byte {at} of those {name} a buffer of {size} was written"));
                    }
                }
                Err(error) => return Some(error.to_string()),
            }
        }
        None
    }
}

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        self.machine.strays.borrow_mut().extend(self.strays());
    }
}

impl Machine for Driver<'_> {
    type Buffer<'m>
        = Guarded<'m>
    where
        Self: 'm;

    fn holding(&self, bytes: &[u8]) -> api::Result<Guarded<'_>> {
        let buffer = self.room(bytes.len())?;
        self.session.send(bytes, buffer.span(), STEP)?;
        Ok(buffer)
    }

    fn room(&self, byte_size: usize) -> api::Result<Guarded<'_>> {
        let start = GUARD + self.manner.skew;
        let memory = self.session.memory(start + byte_size + GUARD, STEP)?;
        self.session.fill(memory.span(), self.manner.poison)?;
        Ok(Guarded { memory, start, byte_size, machine: self })
    }

    fn span<'b>(buffer: &'b Guarded<'_>) -> DeviceSpan<'b> {
        buffer.span()
    }

    fn read(&self, buffer: &Guarded<'_>) -> api::Result<Vec<u8>> {
        self.session.receive(buffer.span(), STEP)
    }
}
