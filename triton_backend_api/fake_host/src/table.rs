//! Handles. What the backend gets for an object is a number that is no address and is never used again, so that
//! a use after the end is seen for what it is instead of reading freed memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::state::{Outcome, Refusal};

/// Above every address a process has, so that nothing but this crate can make sense of a handle.
const FIRST: usize = 0x0FA4_0000_0000_0000;
static NEXT: AtomicUsize = AtomicUsize::new(FIRST);

/// The objects of one kind, the live ones and how the others ended.
pub(crate) struct Table<T> {
    noun: &'static str,
    live: HashMap<usize, T>,
    gone: HashMap<usize, &'static str>,
}

impl<T> Table<T> {
    pub fn new(noun: &'static str) -> Self {
        Self { noun, live: HashMap::new(), gone: HashMap::new() }
    }

    pub fn insert(&mut self, object: T) -> usize {
        let handle = NEXT.fetch_add(16, Ordering::Relaxed);
        self.live.insert(handle, object);
        handle
    }

    /// The live object, or the violation that using this handle is.
    pub fn get(&mut self, handle: usize) -> Outcome<&mut T> {
        match self.live.get_mut(&handle) {
            Some(object) => Ok(object),
            None => Err(lost(self.noun, &self.gone, handle)),
        }
    }

    /// Ends an object: from here on its handle is known as `how`.
    pub fn end(&mut self, handle: usize, how: &'static str) -> Outcome<T> {
        let object = self.live.remove(&handle).ok_or_else(|| lost(self.noun, &self.gone, handle))?;
        self.gone.insert(handle, how);
        Ok(object)
    }

    pub fn is_live(&self, handle: usize) -> bool {
        self.live.contains_key(&handle)
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.live.iter().map(|(handle, object)| (*handle, object))
    }

    pub fn name(&self, handle: usize) -> String {
        name(self.noun, handle)
    }
}

fn lost(noun: &str, gone: &HashMap<usize, &'static str>, handle: usize) -> Refusal {
    Refusal::Violation(match (handle, gone.get(&handle)) {
        (0, _) => format!("null was passed for a {noun}"),
        (_, Some(how)) => format!("{} was used after it was {how}", name(noun, handle)),
        (_, None) => format!("{handle:#x} was passed for a {noun}, which it never was"),
    })
}

fn name(noun: &str, handle: usize) -> String {
    format!("{noun} #{}", handle.wrapping_sub(FIRST) / 16)
}

/// The handle of a pointer that the backend passed.
pub(crate) fn handle<T>(pointer: *mut T) -> usize {
    pointer.addr()
}

/// The pointer that the backend gets.
pub(crate) fn pointer<T>(handle: usize) -> *mut T {
    std::ptr::without_provenance_mut(handle)
}
