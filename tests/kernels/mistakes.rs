//! The host notices what is wrong in a kernel: each of these has one mistake.

use host_kernels::Order;

use crate::host::Buffer;

/// Runs a kernel over two blocks of 64 numbers; what it returns, and its output.
pub fn run(kernel: &str, order: Order) -> (Result<(), String>, Vec<u32>) {
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
