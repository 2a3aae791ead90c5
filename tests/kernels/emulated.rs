//! The driver as a machine, on the emulated one. `kernel_check` runs the same on a real GPU.

use std::sync::LazyLock;

use proptest::prelude::*;
use triton_spleenseg::cpu::Threads;
use triton_spleenseg::cpu::reference::Reference;
use triton_spleenseg::cuda::queue::{DeviceSpan, Queue};
use triton_spleenseg::cuda::{Code, Gpu};
use triton_spleenseg::volume::Shape3;

use crate::cases::{self, Case};
use crate::driver::{Driver, Manner};
use crate::machine::Machine;
use crate::steps::Steps;

fn open(code: Code) -> Gpu {
    fake_driver::load();
    Gpu::open("under test", 0, code, Threads::new(1).unwrap(), 1).unwrap()
}

/// One for all tests: nothing of theirs makes it fail.
static GPU: LazyLock<Gpu> = LazyLock::new(|| open(Code::Any));

fn check(gpu: &Gpu, manner: Manner, cases: &[Case]) {
    let driver = Driver::new(gpu, manner).unwrap();
    let steps = Steps { machine: &driver, cpu: &Reference::default(), times: 2 };
    cases.iter().for_each(|case| steps.check(case).unwrap());
    driver.check().unwrap();
    let violations = fake_driver::violations();
    assert!(violations.is_empty(), "{violations}");
}

#[test]
fn each_step_in_every_manner() {
    Manner::ALL.into_iter().for_each(|manner| check(&GPU, manner, &cases::small()));
}

#[test]
fn each_step_from_ptx() {
    let gpu = open(Code::Ptx);
    assert_eq!((gpu.image(), GPU.image()), ("PTX", "machine code for sm_86"));
    check(&gpu, Manner::ALL[0], &cases::small());
}

#[test]
fn every_pattern() {
    let shape = Shape3::new([5, 7, 97]).unwrap();
    let components: Vec<Case> = cases::components_of_every_pattern(shape).collect();
    let contours: Vec<Case> = cases::contours_of_every_pattern(shape).collect();
    let manners = Manner::ALL.into_iter().cycle();
    for (manner, cases) in manners.zip(components.chunks(10).chain(contours.chunks(10))) {
        check(&GPU, manner, cases);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn anything(manner in proptest::sample::select(&Manner::ALL[..]), cases in cases::any_step()) {
        check(&GPU, manner, &cases);
    }
}

#[test]
fn a_write_beside_a_buffer_is_noticed() {
    for (offset, said) in [(-1, "byte 255 of those before a buffer of 100"), (100, "byte 0 of those behind")]
    {
        let driver = Driver::new(&GPU, Manner::ALL[0]).unwrap();
        let buffer = driver.holding(&[7; 100]).unwrap();
        let address = Driver::span(&buffer).address().wrapping_add_signed(offset);
        // SAFETY: inside the memory that the buffer lies in.
        driver.fill(unsafe { DeviceSpan::new(address, 1) }, 1).unwrap();
        assert_eq!(driver.read(&buffer).unwrap(), [7; 100]);
        driver.check().unwrap();
        drop(buffer);
        let text = driver.check().unwrap_err();
        assert!(text.contains(said), "{text}");
    }
}
