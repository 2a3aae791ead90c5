//! Allocations at addresses that are never used twice. Memory of a GPU cannot be touched by the host: a read or write
//! outside of the driver's own work ends the test with a segmentation fault.

use std::ptr::null_mut;

/// What all memory holds before it is written.
const POISON: u8 = 0xCB;
/// The driver's allocations begin at multiples of this.
const ALIGNMENT: usize = 256;
const PAGE: usize = 4096;

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A GPU's.
    Device(i32),
    /// Page-locked host memory.
    Pinned,
}

/// Memory that was handed out.
pub struct Allocation {
    pub base: u64,
    pub byte_size: usize,
    pub place: Place,
    pub freed: bool,
    mapping: usize,
    mapped: usize,
}

impl Allocation {
    /// Ends, up to the alignment, at a page that nobody may touch.
    pub fn new(byte_size: usize, place: Place) -> Option<Self> {
        let room = byte_size.checked_next_multiple_of(ALIGNMENT)?;
        let mapped = room.checked_next_multiple_of(PAGE)?;
        // SAFETY: a new anonymous mapping.
        let mapping = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(null_mut(), mapped + PAGE, libc::PROT_NONE, flags, -1, 0)
        };
        if mapping == libc::MAP_FAILED {
            return None;
        }
        let base = (mapping as usize + mapped - room) as u64;
        let allocation = Self { base, byte_size, place, freed: false, mapping: mapping as usize, mapped };
        allocation.open(true);
        // SAFETY: mapped above, and open.
        unsafe { std::ptr::write_bytes(base as *mut u8, POISON, room) };
        allocation.open(place == Place::Pinned);
        Some(allocation)
    }

    pub fn holds(&self, address: u64) -> bool {
        (self.base..self.base + self.byte_size.max(1) as u64).contains(&address)
    }

    /// Lets the host touch it, or not.
    pub fn open(&self, open: bool) {
        if self.place == Place::Pinned && !open {
            return;
        }
        let access = if open { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
        // SAFETY: this allocation's own mapping.
        unsafe { libc::mprotect(self.mapping as *mut _, self.mapped, access) };
    }

    /// Ends it. Its addresses stay taken; false where something wrote past its end.
    pub fn free(&mut self) -> bool {
        self.open(true);
        let rest = self.byte_size.next_multiple_of(ALIGNMENT) - self.byte_size;
        let end = (self.base as usize + self.byte_size) as *const u8;
        // SAFETY: the rest of the mapping, open.
        let intact = unsafe { std::slice::from_raw_parts(end, rest) }.iter().all(|byte| *byte == POISON);
        self.freed = true;
        // SAFETY: this allocation's own mapping; its pages go back to the system, its addresses do not.
        unsafe {
            libc::madvise(self.mapping as *mut _, self.mapped, libc::MADV_DONTNEED);
            libc::mprotect(self.mapping as *mut _, self.mapped, libc::PROT_NONE);
        }
        intact
    }
}
