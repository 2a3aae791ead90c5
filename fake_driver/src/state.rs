//! What the driver knows: devices, contexts, memory, streams, events, and what was done wrong.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::kernels::Kernel;
use crate::memory::{Allocation, Place};

pub const INVALID_VALUE: u32 = 1;
pub const OUT_OF_MEMORY: u32 = 2;
pub const NOT_INITIALIZED: u32 = 3;
pub const NO_DEVICE: u32 = 100;
pub const INVALID_DEVICE: u32 = 101;
pub const INVALID_CONTEXT: u32 = 201;
pub const NO_BINARY_FOR_GPU: u32 = 209;
pub const INVALID_HANDLE: u32 = 400;
pub const NOT_FOUND: u32 = 500;
pub const NOT_READY: u32 = 600;

/// Modes of stream capture: in the first, the default, a thread's calls end what other threads capture.
pub const GLOBAL: u32 = 0;
pub const RELAXED: u32 = 2;

/// The outcome of a call: an error is its number.
pub type Outcome<T = ()> = Result<T, u32>;

/// A GPU.
pub struct Device {
    /// How often its primary context is retained.
    pub retained: usize,
    pub capability: i32,
    pub byte_size: usize,
    /// The error that its context does not recover from.
    pub broken: Option<u32>,
}

/// Work in a stream.
pub enum Work {
    Copy { to: u64, from: u64, byte_size: usize },
    Set { to: u64, value: u8, byte_size: usize },
    Launch { kernel: Kernel, grid: [u32; 3], block: [u32; 3], shared: u32, arguments: Vec<u8> },
    Record { event: u64, number: u64 },
}

pub struct Stream {
    pub device: i32,
    pub waiting: VecDeque<Work>,
}

#[derive(Clone, Copy, Default)]
pub struct Event {
    pub timed: bool,
    /// The stream it was last recorded in, and which recording that was.
    pub recorded: Option<(u64, u64)>,
    /// The recording that has come, and when.
    pub come: Option<(u64, u64)>,
}

/// An error to be answered with.
pub struct Fault {
    pub call: String,
    /// How many calls go well before.
    pub after: usize,
    /// How many fail then.
    pub times: usize,
    pub code: u32,
}

#[derive(Default)]
pub struct State {
    pub initialized: bool,
    pub version: i32,
    pub devices: Vec<Device>,
    /// What is not given back yet.
    pub allocations: BTreeMap<u64, Allocation>,
    /// What was: the addresses stay known, so that a later use is seen.
    given_back: BTreeMap<u64, Allocation>,
    pub streams: BTreeMap<u64, Stream>,
    pub events: BTreeMap<u64, Event>,
    pub modules: BTreeMap<u64, i32>,
    pub functions: HashMap<u64, Kernel>,
    pub refused_images: Vec<Vec<u8>>,
    pub faults: Vec<Fault>,
    pub calls: HashMap<String, usize>,
    pub violations: Vec<String>,
    /// Pairs of devices between which copies are made directly.
    next: u64,
    clock: u64,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::new(1)));

thread_local! {
    /// The contexts of this thread, the current one last. A context's handle is its device's number and one.
    pub static CURRENT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    /// The thread's mode of stream capture.
    pub static CAPTURE_MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

pub fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    pub fn new(devices: usize) -> Self {
        let device = || Device { retained: 0, capability: 86, byte_size: 8 << 30, broken: None };
        let devices = (0..devices).map(|_| device()).collect();
        Self { devices, version: 12040, next: 1 << 20, ..Self::default() }
    }

    pub fn violation(&mut self, text: String) {
        self.violations.push(text);
    }

    /// A handle that was never given before.
    pub fn handle(&mut self) -> u64 {
        self.next += 16;
        self.next
    }

    /// Counts a call, and fails it where that is wanted.
    pub fn enter(&mut self, call: &str) -> Outcome {
        *self.calls.entry(call.to_owned()).or_default() += 1;
        for fault in &mut self.faults {
            if fault.call == call && fault.times > 0 {
                if fault.after > 0 {
                    fault.after -= 1;
                } else {
                    fault.times -= 1;
                    let code = fault.code;
                    self.break_if_sticky(code);
                    return Err(code);
                }
            }
        }
        if !self.initialized && !matches!(call, "cuInit" | "cuDriverGetVersion") {
            return Err(NOT_INITIALIZED);
        }
        Ok(())
    }

    /// Errors of execution end the context of the current device.
    pub fn break_if_sticky(&mut self, code: u32) {
        if matches!(code, 214 | 226 | 721)
            || (700..=719).contains(&code) && code != 704 && code != 705 && code != 708
        {
            for device in &mut self.devices {
                device.broken = Some(code);
            }
            // What waits in their streams never runs.
            self.streams.values_mut().for_each(|stream| stream.waiting.clear());
        }
    }

    /// The device of the thread's current context, unless that is broken.
    pub fn current(&mut self, call: &str) -> Outcome<i32> {
        let top = CURRENT.with_borrow(|stack| stack.last().copied());
        let Some(device) = top.map(|context| context as i32 - 1) else {
            self.violation(format!("{call} without a current context"));
            return Err(INVALID_CONTEXT);
        };
        if CAPTURE_MODE.get() != RELAXED {
            self.violation(format!("{call} on a thread whose calls end what other threads capture"));
        }
        match self.devices.get(device as usize) {
            Some(found) if found.retained == 0 => {
                self.violation(format!("{call} in a context that was released"));
                Err(INVALID_CONTEXT)
            }
            Some(found) => found.broken.map_or(Ok(device), Err),
            None => Err(INVALID_DEVICE),
        }
    }

    /// The allocation that an address lies in, live or not.
    pub fn allocation(&self, address: u64) -> Option<&Allocation> {
        [&self.allocations, &self.given_back].into_iter().find_map(|allocations| {
            let (_, found) = allocations.range(..=address).next_back()?;
            found.holds(address).then_some(found)
        })
    }

    /// That a range of GPU or pinned memory is one allocation's, live; other addresses are the host's own.
    pub fn check_range(&mut self, call: &str, base: u64, byte_size: usize, device_only: bool) -> Outcome {
        let found =
            self.allocation(base).map(|found| (found.freed, found.base, found.byte_size, found.place));
        let problem = match found {
            Some((true, ..)) => "memory that was given back",
            Some((_, start, size, _)) if base + byte_size as u64 > start + size as u64 => {
                "memory past an allocation's end"
            }
            Some((.., Place::Pinned)) if device_only => "host memory as a GPU's",
            None if device_only => "an address that was never a GPU's",
            _ => return Ok(()),
        };
        self.violation(format!("{call} uses {problem}: {byte_size} bytes at {base:#x}"));
        Err(INVALID_VALUE)
    }

    pub fn now(&mut self) -> u64 {
        self.clock += 1000;
        self.clock
    }

    /// How much of a device's memory is in use.
    pub fn used(&self, device: i32) -> usize {
        let live = self.allocations.values().filter(|a| a.place == Place::Device(device));
        live.map(|allocation| allocation.byte_size).sum()
    }

    pub fn allocate(&mut self, byte_size: usize, place: Place) -> Outcome<u64> {
        if let Place::Device(device) = place {
            let room = self.devices.get(device as usize).ok_or(INVALID_DEVICE)?.byte_size;
            if self.used(device).saturating_add(byte_size) > room {
                return Err(OUT_OF_MEMORY);
            }
        }
        let allocation = Allocation::new(byte_size, place).ok_or(OUT_OF_MEMORY)?;
        let base = allocation.base;
        self.allocations.insert(base, allocation);
        Ok(base)
    }

    pub fn free(&mut self, call: &str, base: u64) -> Outcome {
        // A real driver may wait for what is under way, but does not promise to.
        let byte_size = self.allocations.get(&base).map_or(0, |found| found.byte_size);
        if self.is_in_use(base, byte_size) {
            self.violation(format!("{call} of memory at {base:#x} while work on it was still to run"));
        }
        let Some(mut allocation) = self.allocations.remove(&base) else {
            self.violation(format!("{call} of {base:#x}, which is no allocation, or was given back before"));
            return Err(INVALID_VALUE);
        };
        let intact = allocation.free();
        self.given_back.insert(base, allocation);
        if !intact {
            self.violation(format!("something wrote past the end of the memory at {base:#x}"));
        }
        Ok(())
    }

    /// What is left: nothing, after all is given back.
    pub fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for allocation in self.allocations.values() {
            left.push(format!("{} bytes of {:?}", allocation.byte_size, allocation.place));
        }
        left.extend(self.streams.keys().map(|stream| format!("stream {stream:#x}")));
        left.extend(self.events.keys().map(|event| format!("event {event:#x}")));
        left.extend(self.modules.keys().map(|module| format!("module {module:#x}")));
        for (number, device) in self.devices.iter().enumerate().filter(|(_, device)| device.retained > 0) {
            left.push(format!("primary context of GPU {number}, retained {} times", device.retained));
        }
        left
    }
}
