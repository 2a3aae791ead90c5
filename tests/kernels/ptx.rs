//! The PTX that NVRTC made of the kernels as a machine: `ptx_interpreter` runs it, in several block shapes and orders.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::LazyLock;

use proptest::prelude::*;
use ptx_interpreter::{Memory, Program};
use triton_backend_api::{self as api, Error};
use triton_spleenseg::cpu::reference::Reference;
use triton_spleenseg::cuda::images::PTX;
use triton_spleenseg::cuda::kernels::Kernel;
use triton_spleenseg::cuda::queue::{DeviceSpan, Launch, Queue};
use triton_spleenseg::volume::{LabelType, LogitType, Shape3, VoxelType};

use crate::cases::{self, Case, Image, Scores};
use crate::machine::Machine;
use crate::steps::Steps;

fn text() -> &'static str {
    std::str::from_utf8(PTX).unwrap().trim_end_matches('\0')
}

static PROGRAM: LazyLock<Program> = LazyLock::new(|| Program::parse(text()).unwrap());

/// How kernels are run.
#[derive(Clone, Copy, Debug)]
struct Manner {
    block: u32,
    multiprocessors: u32,
    seed: u64,
    /// Buffers that hold something begin at so many elements, and at no higher power of 2; others at as many times 8 bytes.
    alignment: u64,
}

/// For tests that take them in turn.
const MANNERS: [Manner; 6] = [
    Manner { block: 32, multiprocessors: 1, seed: 0, alignment: 1 },
    Manner { block: 64, multiprocessors: 1, seed: 1, alignment: 32 },
    Manner { block: 256, multiprocessors: 1, seed: 2, alignment: 32 },
    Manner { block: 96, multiprocessors: 2, seed: 3, alignment: 2 },
    Manner { block: 1024, multiprocessors: 1, seed: 4, alignment: 1 },
    Manner { block: 32, multiprocessors: 1, seed: 5, alignment: 32 },
];

/// Memory, and the kernels that ran on it.
struct Ptx<'p> {
    program: &'p Program,
    manner: Manner,
    /// Bytes of an element of what buffers hold.
    element: u64,
    memory: RefCell<Memory>,
    ran: RefCell<BTreeSet<&'static str>>,
}

impl<'p> Ptx<'p> {
    fn new(program: &'p Program, manner: Manner, case: &Case) -> Self {
        let element = match case {
            Case::Foreground { image, .. } | Case::Resize { image, .. } => image.voxel_type.size(),
            Case::Argmax(scores) => scores.logit_type.size(),
            _ => 1,
        };
        let memory = RefCell::new(Memory::global());
        Self { program, manner, element: element as u64, memory, ran: RefCell::default() }
    }
}

impl fmt::Debug for Ptx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX, {:?}", self.manner)
    }
}

impl Queue for Ptx<'_> {
    unsafe fn launch(&self, launch: &Launch<'_>) -> api::Result<()> {
        // SAFETY: the launch has the address and size of a structure without padding that matters.
        let argument =
            unsafe { std::slice::from_raw_parts(launch.arguments.cast::<u8>(), launch.argument_bytes) };
        let Launch { grid, block, shared_bytes, .. } = *launch;
        let (kernel, seed) = (launch.kernel.name(), self.manner.seed);
        let launch = ptx_interpreter::Launch { kernel, grid, block, shared_bytes, argument, seed };
        self.ran.borrow_mut().insert(kernel);
        self.program.run(&mut self.memory.borrow_mut(), &launch).map_err(Error::internal)
    }

    fn fill(&self, span: DeviceSpan<'_>, byte: u8) -> api::Result<()> {
        self.memory.borrow_mut().fill(span.address(), span.bytes(), byte).map_err(Error::internal)
    }

    fn copy(&self, from: DeviceSpan<'_>, to: DeviceSpan<'_>) -> api::Result<()> {
        let copied = self.memory.borrow_mut().copy(from.address(), to.address(), from.bytes());
        copied.map_err(Error::internal)
    }

    fn multiprocessors(&self) -> u32 {
        self.manner.multiprocessors
    }

    fn block(&self) -> u32 {
        self.manner.block
    }
}

/// A piece of memory until it is dropped.
struct Buffer<'m> {
    machine: &'m Ptx<'m>,
    address: u64,
    byte_size: usize,
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        self.machine.memory.borrow_mut().free(self.address);
    }
}

impl Machine for Ptx<'_> {
    type Buffer<'m>
        = Buffer<'m>
    where
        Self: 'm;

    fn holding(&self, bytes: &[u8]) -> api::Result<Buffer<'_>> {
        let address = self.memory.borrow_mut().holding(bytes, self.manner.alignment * self.element);
        Ok(Buffer { machine: self, address, byte_size: bytes.len() })
    }

    fn room(&self, byte_size: usize) -> api::Result<Buffer<'_>> {
        let address = self.memory.borrow_mut().room(byte_size, self.manner.alignment * 8);
        Ok(Buffer { machine: self, address, byte_size })
    }

    fn span<'b>(buffer: &'b Buffer<'_>) -> DeviceSpan<'b> {
        // SAFETY: the interpreter's memory, which only it and its machine use.
        unsafe { DeviceSpan::new(buffer.address, buffer.byte_size) }
    }

    fn read(&self, buffer: &Buffer<'_>) -> api::Result<Vec<u8>> {
        self.memory.borrow().read(buffer.address, buffer.byte_size).map_err(Error::internal)
    }
}

/// Each case in one manner, all manners in turn from this one on; the names of the kernels that ran.
fn check(
    program: &Program,
    first: usize,
    cases: impl IntoIterator<Item = Case>,
) -> Result<BTreeSet<&'static str>, String> {
    let mut ran = BTreeSet::new();
    for (case, manner) in cases.into_iter().zip(MANNERS.into_iter().cycle().skip(first)) {
        let ptx = Ptx::new(program, manner, &case);
        Steps { machine: &ptx, cpu: &Reference::default(), times: 1 }.check(&case)?;
        ran.extend(ptx.ran.into_inner());
    }
    Ok(ran)
}

/// The same in the other type of its voxels, scores or outputs.
fn in_other_types(case: &Case) -> Vec<Case> {
    let floats = |bytes: &[u8]| -> Vec<f32> {
        bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect()
    };
    let int16 = |image: &Image| Image {
        bytes: floats(&image.bytes).iter().flat_map(|value| (*value as i16).to_ne_bytes()).collect(),
        voxel_type: VoxelType::Int16,
        shape: image.shape,
    };
    match case.clone() {
        Case::Foreground { image, scale, pieces } => {
            vec![Case::Foreground { image: int16(&image), scale, pieces }]
        }
        Case::Resize { image, plan } => vec![Case::Resize { image: int16(&image), plan }],
        Case::Argmax(scores) => {
            let halves = floats(&scores.bytes).into_iter().map(half::f16::from_f32);
            let bytes = halves.flat_map(half::f16::to_ne_bytes).collect();
            vec![Case::Argmax(Scores { bytes, logit_type: LogitType::Fp16, ..scores })]
        }
        Case::Convert { map, .. } => [LabelType::Fp32, LabelType::Int32, LabelType::Int64]
            .map(|label_type| Case::Convert { map: map.clone(), label_type })
            .into(),
        _ => Vec::new(),
    }
}

#[test]
fn every_kernel_gives_what_the_cpu_gives() {
    let mut cases = cases::small();
    cases.extend(cases::large_windows().into_iter().step_by(2));
    cases.extend(cases.iter().flat_map(in_other_types).collect::<Vec<_>>());
    let ran = check(&PROGRAM, 0, cases).unwrap();
    let all: BTreeSet<&str> = Kernel::ALL.iter().map(|kernel| kernel.name()).collect();
    assert_eq!(ran, all);
    assert_eq!(PROGRAM.kernels().collect::<BTreeSet<_>>(), all);
}

#[test]
fn every_pattern() {
    // Rows that are read byte by byte, and 16 bytes at once.
    for shape in [[5, 7, 97], [5, 7, 64]].map(|dims| Shape3::new(dims).unwrap()) {
        check(&PROGRAM, 0, cases::components_of_every_pattern(shape)).unwrap();
        check(&PROGRAM, 0, cases::contours_of_every_pattern(shape)).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn anything(manner in 0..MANNERS.len(), cases in cases::any_step()) {
        check(&PROGRAM, manner, cases).unwrap();
    }
}

#[test]
fn a_mistake_in_the_ptx_is_noticed() {
    let cases = || cases::small().into_iter().filter(|case| !matches!(case, Case::Resize { .. }));
    for (right, wrong) in [
        ("bar.sync \t0;", ""),
        ("atom.global.max.u64", "atom.global.min.u64"),
        ("shfl.sync.up.b32", "shfl.sync.bfly.b32"),
        ("brev.b32", "not.b32"),
    ] {
        let program = Program::parse(&text().replace(right, wrong)).unwrap();
        check(&program, 0, cases()).expect_err(right);
    }
}
