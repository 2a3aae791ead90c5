//! Work in streams. Nothing runs before something waits for it: a result that is read too early, or a source that is
//! overwritten too early, is then wrong for certain.

use host_kernels::Order;

use crate::memory::Place;
use crate::state::{INVALID_HANDLE, Outcome, State, Work};

impl State {
    /// Puts work at the end of a stream.
    pub fn push(&mut self, call: &str, stream: u64, work: Work) -> Outcome {
        let device = self.current(call)?;
        let Some(found) = self.streams.get_mut(&stream) else {
            self.violation(format!(
                "{call} in {}",
                match stream {
                    0 => "the default stream".to_owned(),
                    other => format!("a stream that is not there, {other:#x}"),
                }
            ));
            return Err(INVALID_HANDLE);
        };
        if found.device != device {
            let text =
                format!("{call} in a stream of GPU {}, with the context of GPU {device}", found.device);
            self.violation(text);
            return Err(INVALID_HANDLE);
        }
        found.waiting.push_back(work);
        Ok(())
    }

    /// Whether work that waits in any stream uses this range.
    pub fn is_in_use(&self, base: u64, byte_size: usize) -> bool {
        let meets = |from: u64, size: usize| from < base + byte_size as u64 && base < from + size as u64;
        let uses = |work: &Work| match work {
            Work::Copy { to, from, byte_size } => meets(*to, *byte_size) || meets(*from, *byte_size),
            Work::Set { to, byte_size, .. } => meets(*to, *byte_size),
            Work::Launch { arguments, .. } => pointers(arguments).any(|pointer| {
                self.allocation(pointer).is_some_and(|found| meets(found.base, found.byte_size))
            }),
            Work::Record { .. } => false,
        };
        self.streams.values().flat_map(|stream| &stream.waiting).any(uses)
    }

    /// Runs a stream's work, up to a recording of an event where one is named.
    pub fn run(&mut self, stream: u64, until: Option<(u64, u64)>) -> Outcome {
        self.open_all(true);
        let mut outcome = Ok(());
        while outcome.is_ok() {
            let Some(work) = self.streams.get_mut(&stream).and_then(|stream| stream.waiting.pop_front())
            else {
                break;
            };
            let device = self.streams.get(&stream).map_or(0, |stream| stream.device);
            outcome = self.perform(device, &work);
            if let (Work::Record { event, number }, Some(until)) = (&work, until)
                && (*event, *number) == until
            {
                break;
            }
        }
        self.open_all(false);
        outcome
    }

    fn open_all(&self, open: bool) {
        self.allocations.values().for_each(|allocation| allocation.open(open));
    }

    fn perform(&mut self, device: i32, work: &Work) -> Outcome {
        if let Some(code) = self.devices.get(device as usize).and_then(|device| device.broken) {
            return Err(code);
        }
        match work {
            Work::Copy { to, from, byte_size } => {
                self.check_range("a copy, when it ran,", *to, *byte_size, false)?;
                self.check_range("a copy, when it ran,", *from, *byte_size, false)?;
                // SAFETY: both ranges are live allocations, or the caller's own memory, which it keeps until then.
                unsafe { std::ptr::copy(*from as *const u8, *to as *mut u8, *byte_size) };
            }
            Work::Set { to, value, byte_size } => {
                self.check_range("a fill, when it ran,", *to, *byte_size, true)?;
                // SAFETY: a live allocation.
                unsafe { std::ptr::write_bytes(*to as *mut u8, *value, *byte_size) };
            }
            Work::Launch { kernel, grid, block, shared, arguments } => {
                let name = kernel.name();
                self.check_pointers(device, name, arguments)?;
                let fault = format!("run {name}");
                self.enter(&fault)?;
                // SAFETY: what looks like an address is live memory; what a kernel does past its end meets a closed page.
                let ran = unsafe { kernel.run(*grid, *block, *shared, arguments, Order::default()) };
                if let Err(problem) = ran {
                    self.violation(format!("kernel {name}: {problem}"));
                    self.break_if_sticky(719);
                    return Err(719);
                }
            }
            Work::Record { event, number } => {
                let now = self.now();
                if let Some(event) = self.events.get_mut(event) {
                    event.come = Some((*number, now));
                }
            }
        }
        Ok(())
    }

    /// That what looks like an address among a kernel's arguments is live memory of its device, or pinned.
    pub fn check_pointers(&mut self, device: i32, kernel: &str, arguments: &[u8]) -> Outcome {
        for pointer in pointers(arguments) {
            let problem = match self.allocation(pointer) {
                Some(found) if found.freed => "memory that was given back".to_owned(),
                Some(found) if found.place != Place::Device(device) && found.place != Place::Pinned => {
                    format!("memory of {:?} on GPU {device}", found.place)
                }
                _ => continue,
            };
            self.violation(format!("kernel {kernel} uses {problem}: {pointer:#x}"));
            self.break_if_sticky(700);
            return Err(700);
        }
        Ok(())
    }
}

/// The arguments that could be addresses.
fn pointers(arguments: &[u8]) -> impl Iterator<Item = u64> {
    arguments.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes))
}
