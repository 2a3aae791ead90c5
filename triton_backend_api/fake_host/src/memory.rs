//! The server's memory. Without a test's GPU memory, a GPU's is host memory that nobody may touch: see [`Block`].

use std::collections::HashMap;
use std::ffi::c_void;

use triton_backend_api::sys::*;

use crate::block::Block;
use crate::state::{Outcome, Refusal, State, consume, lock, put, symbols};
use crate::table::handle;

/// Where the one manager is, as far as a backend can tell.
const MANAGER: usize = 0x0FA3_0000_0000_0000;

#[derive(Default)]
pub(crate) struct Memory {
    /// By address.
    blocks: HashMap<usize, Block>,
    gpus: i64,
    /// Of each GPU's pool, where it has a limit.
    gpu_pool: Option<u64>,
}

impl Memory {
    pub fn manager(&self) -> usize {
        MANAGER
    }

    /// What is left, in words.
    pub fn left(&self) -> impl Iterator<Item = String> {
        self.blocks.values().map(|block| {
            format!("a block of {} bytes, memory type {},", block.byte_size(), block.memory_type)
        })
    }
}

impl crate::FakeHost {
    /// Gives the server this many GPUs, whose memory nobody may touch unless a test brings some. It starts with none.
    pub fn set_gpus(&self, count: i64) {
        lock().memory.gpus = count;
    }

    /// Lets the server's pool of each GPU give no block above this size, as a real one of so many bytes.
    pub fn set_gpu_pool(&self, byte_size: u64) {
        lock().memory.gpu_pool = Some(byte_size);
    }

    /// How many blocks of the server's memory are in use.
    pub fn blocks_in_use(&self) -> usize {
        lock().memory.blocks.len()
    }
}

fn is_manager(manager: *mut TRITONBACKEND_MemoryManager) -> Outcome {
    match handle(manager) {
        MANAGER => Ok(()),
        other => Err(Refusal::Violation(format!("{other:#x} was passed for a memory manager"))),
    }
}

fn free(state: &mut State, buffer: *mut c_void, kind: (TRITONSERVER_MemoryType, i64)) -> Outcome {
    let Some(block) = state.memory.blocks.remove(&buffer.addr()) else {
        return Err(Refusal::Violation(format!("{buffer:?} was freed, which is no block in use")));
    };
    let was = (block.memory_type, block.memory_type_id);
    let size = block.byte_size();
    let what = if was != kind {
        format!("a block of {size} bytes was freed as memory {kind:?}; it was allocated as {was:?}")
    } else if !block.is_intact() {
        format!("a block of {size} bytes was written past its ends")
    } else if was.0 == TRITONSERVER_MEMORY_GPU && !block.is_untouched() {
        format!("a block of {size} bytes is a GPU's, and was written by the CPU")
    } else {
        return Ok(());
    };
    Err(Refusal::Violation(what))
}

symbols! {
    fn TRITONBACKEND_MemoryManagerAllocate(
        manager: *mut TRITONBACKEND_MemoryManager, buffer: *mut *mut c_void,
        memory_type: TRITONSERVER_MemoryType, memory_type_id: i64, byte_size: u64
    ) |state| {
        is_manager(manager)?;
        let there = match memory_type {
            TRITONSERVER_MEMORY_CPU | TRITONSERVER_MEMORY_CPU_PINNED => true,
            TRITONSERVER_MEMORY_GPU => (0..state.memory.gpus).contains(&memory_type_id),
            _ => false,
        };
        if !there {
            let what = format!("this server has no memory of type {memory_type}, number {memory_type_id}");
            return Err(Refusal::Error(TRITONSERVER_ERROR_UNSUPPORTED, what));
        }
        let of_pool = (memory_type == TRITONSERVER_MEMORY_GPU).then_some(state.memory.gpu_pool).flatten();
        if byte_size > of_pool.unwrap_or(1 << 40) {
            let what = format!("there are no {byte_size} bytes");
            return Err(Refusal::Error(TRITONSERVER_ERROR_UNAVAILABLE, what));
        }
        let mut block = Block::new(byte_size as usize, 0, (memory_type, memory_type_id));
        let base = block.as_mut_ptr();
        if base.is_null() {
            let what = format!("GPU {memory_type_id} has no {byte_size} bytes left");
            return Err(Refusal::Error(TRITONSERVER_ERROR_UNAVAILABLE, what));
        }
        state.memory.blocks.insert(base.addr(), block);
        put(buffer, base.cast())
    }
}

/// See the ABI. Its block is taken also where it is made to fail.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONBACKEND_MemoryManagerFree(
    manager: *mut TRITONBACKEND_MemoryManager,
    buffer: *mut c_void,
    memory_type: TRITONSERVER_MemoryType,
    memory_type_id: i64,
) -> *mut TRITONSERVER_Error {
    let free = |state: &mut State, _| {
        is_manager(manager)?;
        free(state, buffer, (memory_type, memory_type_id))
    };
    consume("TRITONBACKEND_MemoryManagerFree", free, drop)
}
