//! The host as a machine, in several block shapes and orders.

use host_kernels::Order;
use proptest::prelude::*;
use triton_backend_api::Result;
use triton_spleenseg::cpu::reference::Reference;
use triton_spleenseg::cuda::queue::{DeviceSpan, Launch, Queue};

use crate::cases::Case;
use crate::host::{Buffer, Host};
use crate::machine::Machine;
use crate::steps::Steps;

/// The host, with buffers that begin so far behind an address of 16: 0, or 8, which is what some memory needs.
#[derive(Clone, Copy, Debug)]
pub struct OnHost {
    pub host: Host,
    pub skew: usize,
}

impl Queue for OnHost {
    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.host.launch(launch) }
    }

    fn fill(&self, span: DeviceSpan<'_>, byte: u8) -> Result<()> {
        self.host.fill(span, byte)
    }

    fn copy(&self, from: DeviceSpan<'_>, to: DeviceSpan<'_>) -> Result<()> {
        self.host.copy(from, to)
    }

    fn multiprocessors(&self) -> u32 {
        self.host.multiprocessors()
    }

    fn block(&self) -> u32 {
        self.host.block()
    }
}

/// Its last bytes, behind the skew.
pub struct Skewed {
    buffer: Buffer,
    skew: usize,
}

impl Machine for OnHost {
    type Buffer<'m> = Skewed;

    fn holding(&self, bytes: &[u8]) -> Result<Skewed> {
        let buffer = Buffer::of(&[&vec![0; self.skew], bytes].concat());
        Ok(Skewed { buffer, skew: self.skew })
    }

    fn room(&self, byte_size: usize) -> Result<Skewed> {
        Ok(Skewed { buffer: Buffer::new(self.skew + byte_size), skew: self.skew })
    }

    fn span(buffer: &Skewed) -> DeviceSpan<'_> {
        let all = buffer.buffer.span();
        all.part(buffer.skew, all.bytes() - buffer.skew).unwrap()
    }

    fn read(&self, buffer: &Skewed) -> Result<Vec<u8>> {
        Ok(buffer.buffer.bytes()[buffer.skew..].to_vec())
    }
}

/// Compared with the CPU's steps in their plainest form, which the faster one is compared with elsewhere; and without
/// threads, of which a sanitizer would have to know.
pub fn check(host: &OnHost, case: &Case) {
    Steps { machine: host, cpu: &Reference::default(), times: 1 }.check(case).unwrap();
}

/// Some, for tests that take them in turn.
pub fn hosts() -> impl Iterator<Item = OnHost> + Clone {
    let order = |seed, workers| Order { seed, workers };
    [
        (32, 1, order(0, 1), 0),
        (64, 1, order(1, 1), 8),
        (256, 1, order(2, 1), 0),
        (96, 2, order(3, 3), 8),
        (1024, 1, order(4, 1), 0),
        (32, 1, order(5, 2), 8),
    ]
    .into_iter()
    .map(|(block, multiprocessors, order, skew)| OnHost {
        host: Host { block, multiprocessors, order },
        skew,
    })
}

/// Any.
pub fn any_host() -> impl Strategy<Value = OnHost> {
    let block = prop_oneof![Just(32u32), Just(64), Just(96), Just(256)];
    let seed = any::<u64>().prop_map(|seed| seed >> (seed % 64));
    (block, 1..3u32, seed, 1..3u32, prop_oneof![Just(0), Just(8)]).prop_map(
        |(block, multiprocessors, seed, workers, skew)| OnHost {
            host: Host { block, multiprocessors, order: Order { seed, workers } },
            skew,
        },
    )
}
