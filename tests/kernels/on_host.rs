//! The host as a machine, in several block shapes and orders.

use host_kernels::Order;
use proptest::prelude::*;
use triton_backend_api::Result;
use triton_spleenseg::cpu::reference::Reference;
use triton_spleenseg::cuda::queue::DeviceSpan;

use crate::cases::Case;
use crate::host::{Buffer, Host};
use crate::machine::Machine;
use crate::steps::Steps;

impl Machine for Host {
    type Buffer<'m> = Buffer;

    fn holding(&self, bytes: &[u8]) -> Result<Buffer> {
        Ok(Buffer::of(bytes))
    }

    fn room(&self, byte_size: usize) -> Result<Buffer> {
        Ok(Buffer::new(byte_size))
    }

    fn span(buffer: &Buffer) -> DeviceSpan<'_> {
        buffer.span()
    }

    fn read(&self, buffer: &Buffer) -> Result<Vec<u8>> {
        Ok(buffer.bytes().to_vec())
    }
}

/// Compared with the CPU's steps in their plainest form, which the faster one is compared with elsewhere; and without
/// threads, of which a sanitizer would have to know.
pub fn check(host: &Host, case: &Case) {
    Steps { machine: host, cpu: &Reference::default(), times: 1 }.check(case).unwrap();
}

/// Some, for tests that take them in turn.
pub fn hosts() -> impl Iterator<Item = Host> + Clone {
    let order = |seed, workers| Order { seed, workers };
    [
        (32, 1, order(0, 1)),
        (64, 1, order(1, 1)),
        (256, 1, order(2, 1)),
        (96, 2, order(3, 3)),
        (1024, 1, order(4, 1)),
        (32, 1, order(5, 2)),
    ]
    .into_iter()
    .map(|(block, multiprocessors, order)| Host { block, multiprocessors, order })
}

/// Any.
pub fn any_host() -> impl Strategy<Value = Host> {
    let block = prop_oneof![Just(32u32), Just(64), Just(96), Just(256)];
    (block, 1..3u32, any::<u64>().prop_map(|seed| seed >> (seed % 64)), 1..3u32).prop_map(
        |(block, multiprocessors, seed, workers)| Host {
            block,
            multiprocessors,
            order: Order { seed, workers },
        },
    )
}
