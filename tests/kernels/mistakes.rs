//! The host notices what is wrong in a kernel, of which each has one mistake; the comparisons notice what is wrong in a result.

use host_kernels::Order;
use triton_backend_api::Result;
use triton_spleenseg::cpu::reference::Reference;
use triton_spleenseg::cuda::queue::{DeviceSpan, Launch, Queue};

use crate::cases;
use crate::host::{Buffer, Host};
use crate::machine::Machine;
use crate::on_host::{OnHost, Skewed};
use crate::steps::Steps;

/// Runs a kernel over two blocks of 64 numbers; what it returns, and its output.
pub fn run(kernel: &str, order: Order) -> (std::result::Result<(), String>, Vec<u32>) {
    let values: Vec<u8> = (0..128u32).flat_map(u32::to_ne_bytes).collect();
    let (values, out) = (Buffer::of(&values), Buffer::new(128 * 4));
    let arguments: Vec<u8> =
        [values.span().address(), out.span().address()].into_iter().flat_map(u64::to_ne_bytes).collect();
    let kernel = host_kernels::find(kernel).unwrap().unwrap();
    // SAFETY: both buffers have an element for each of 128 threads.
    let result = unsafe { kernel.run([2, 1, 1], [64, 1, 1], 0, &arguments, order) };
    (result, out.bytes().as_chunks().0.iter().map(|bytes| u32::from_ne_bytes(*bytes)).collect())
}

fn orders() -> impl Iterator<Item = Order> {
    (0..8).map(|seed| Order { seed, workers: 1 })
}

#[test]
fn a_missing_barrier_gives_another_result_in_some_order() {
    let expected: Vec<u32> = (0..64).rev().chain((64..128).rev()).collect();
    assert!(orders().all(|order| run("broken_no_error", order) == (Ok(()), expected.clone())));
    assert!(orders().any(|order| run("broken_missing_barrier", order).1 != expected));
}

#[test]
fn a_shuffle_with_lanes_that_never_come_is_an_error() {
    for order in orders() {
        let error = run("broken_shuffle_mask", order).0.unwrap_err();
        assert!(error.contains("has ended") || error.contains("never come"), "{error}");
    }
}

#[test]
fn arguments_of_another_size_are_refused() {
    let kernel = host_kernels::find("broken_no_error").unwrap().unwrap();
    // SAFETY: nothing runs.
    let error = unsafe { kernel.run([1, 1, 1], [32, 1, 1], 0, &[0; 8], Order::default()) }.unwrap_err();
    assert!(error.contains("16 bytes"), "{error}");
}

/// A host whose results have a bit flipped in their last byte.
#[derive(Debug)]
struct Flipped(OnHost);

impl Queue for Flipped {
    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.0.launch(launch) }
    }

    fn fill(&self, span: DeviceSpan<'_>, byte: u8) -> Result<()> {
        self.0.fill(span, byte)
    }

    fn copy(&self, from: DeviceSpan<'_>, to: DeviceSpan<'_>) -> Result<()> {
        self.0.copy(from, to)
    }

    fn multiprocessors(&self) -> u32 {
        self.0.multiprocessors()
    }
}

impl Machine for Flipped {
    type Buffer<'m> = Skewed;

    fn holding(&self, bytes: &[u8]) -> Result<Skewed> {
        self.0.holding(bytes)
    }

    fn room(&self, byte_size: usize) -> Result<Skewed> {
        self.0.room(byte_size)
    }

    fn span(buffer: &Skewed) -> DeviceSpan<'_> {
        OnHost::span(buffer)
    }

    fn read(&self, buffer: &Skewed) -> Result<Vec<u8>> {
        let mut bytes = self.0.read(buffer)?;
        *bytes.last_mut().unwrap() ^= 0x40;
        Ok(bytes)
    }
}

#[test]
fn every_comparison_notices_one_bit() {
    let machine = Flipped(OnHost { host: Host::default(), skew: 0 });
    let steps = Steps { machine: &machine, cpu: &Reference::default(), times: 1 };
    for case in cases::small() {
        let why = steps.check(&case).expect_err(&case.to_string());
        assert!(why.contains(", CPU "), "{why}");
    }
}
