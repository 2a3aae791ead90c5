//! For tests: the host's buffers through a GPU and back. The GPU is the emulated one, whose memory no test can touch.

use std::marker::PhantomData;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use fake_driver::Foreign;
use triton_backend_api::{MemoryKind, Result};

use super::buffers::{Input, Labels, Logits, Output, Source};
use super::transfer::Place;
use super::{Code, Gpu, Session};
use crate::config::{KeepLargest, Scale};
use crate::cpu::{self, Threads};
use crate::native::{Placement, VoxelCount};
use crate::pipeline::{Argmax, CropScaleResize, Device};
use crate::volume::{Foreground, LabelType};

/// One GPU for all tests: nothing of theirs makes it fail.
static GPU: LazyLock<Gpu> = LazyLock::new(|| {
    fake_driver::load();
    Gpu::open("under test", 0, Code::Any, Threads::new(2).unwrap(), 1).unwrap()
});

/// Memory in each of the ways that the server has it, in turn, holding these bytes.
struct Placed {
    places: Vec<Place>,
    /// Where it is used in place, if it can be.
    in_place: bool,
    _foreign: Option<Foreign>,
    _bytes: Vec<u8>,
}

impl Placed {
    fn new(bytes: &[u8], align: usize) -> Self {
        static TURN: AtomicUsize = AtomicUsize::new(0);
        let host = |bytes: &[u8]| {
            // SAFETY: host memory that is kept with the places.
            unsafe { Place::new(bytes.as_ptr() as u64, bytes.len(), MemoryKind::Host) }
        };
        let bytes = bytes.to_vec();
        let turn = TURN.fetch_add(1, Ordering::Relaxed) % 5;
        let (places, foreign) = match turn {
            0 => (vec![host(&bytes)], None),
            1 | 2 => {
                let (first, second) = (bytes.len() / 3, bytes.len() / 3 + bytes.len() / 7);
                let (a, b, c) = (&bytes[..first], &bytes[first..second], &bytes[second..]);
                let foreign = (turn == 2 && !b.is_empty()).then(|| gpu_memory(b, 0));
                let middle = foreign.as_ref().map_or_else(|| host(b), |foreign| gpu_place(foreign, 0));
                let places = [host(a), middle, host(c)].into_iter().filter(|place| place.byte_size() > 0);
                (places.collect(), foreign)
            }
            _ => {
                let off = if turn == 3 { 0 } else { 1 };
                let foreign = gpu_memory(&bytes, off);
                (vec![gpu_place(&foreign, off)], Some(foreign))
            }
        };
        let in_place = matches!(places.as_slice(), [only] if only.kind() == MemoryKind::Gpu(0)
            && only.base().is_multiple_of(align as u64));
        Self { places, in_place, _foreign: foreign, _bytes: bytes }
    }
}

fn gpu_memory(bytes: &[u8], off: usize) -> Foreign {
    let mut padded = vec![0; off];
    padded.extend(bytes);
    fake_driver::memory(0, &padded)
}

fn gpu_place(foreign: &Foreign, off: usize) -> Place {
    // SAFETY: memory of that GPU, which the test keeps.
    unsafe { Place::new(foreign.base() + off as u64, foreign.byte_size() - off, MemoryKind::Gpu(0)) }
}

fn with_input<R>(input: &cpu::Input<'_>, work: impl FnOnce(&Session<'_>, &Input<'_>) -> R) -> R {
    let session = GPU.session().unwrap();
    let placed = Placed::new(input.bytes(), input.voxel_type().size());
    let memory = (!placed.in_place).then(|| session.memory(input.bytes().len(), "test").unwrap());
    let source = Source { places: placed.places.clone(), memory, owner: PhantomData };
    work(&session, &Input::new(&source, 0, input.voxel_type(), input.shape()))
}

fn labels(session: &Session<'_>, labels: &cpu::Labels) -> Labels {
    let memory = session.memory(labels.data().len(), "test").unwrap();
    let placed = Placed::new(labels.data(), 1);
    let pieces = session.upload(placed.places.iter().copied(), memory.span(), "test", |_| Ok(())).unwrap();
    session.wait("test").unwrap();
    drop(pieces);
    Labels { memory, shape: labels.shape(), highest: labels.highest() }
}

fn host(session: &Session<'_>, labels: &Labels) -> cpu::Labels {
    let data = session.receive(labels.memory.span(), "test").unwrap();
    cpu::Labels::new(&data, labels.shape).unwrap()
}

fn no_violation() {
    let violations = fake_driver::violations();
    assert!(violations.is_empty(), "{violations}");
}

pub fn find_foreground(input: &cpu::Input<'_>, scale: &Scale) -> Foreground {
    let found = with_input(input, |session, input| session.find_foreground(input, scale).unwrap());
    no_violation();
    found
}

/// The resized voxels, of an input that was searched before or not.
pub fn crop_scale_resize(input: &cpu::Input<'_>, plan: &CropScaleResize) -> Vec<f32> {
    let bytes = with_input(input, |session, input| {
        if plan.size.count().is_multiple_of(2) {
            session.find_foreground(input, &plan.scale).unwrap();
        }
        let tensor = session.crop_scale_resize(input, plan).unwrap();
        let memory = crate::bridge::Bridge::memory(session, tensor).unwrap();
        // As the network would read it.
        fake_driver::read(memory.base(), memory.byte_size())
    });
    no_violation();
    bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect()
}

pub fn argmax(logits: &cpu::Logits<'_>) -> Argmax<cpu::Labels> {
    let session = GPU.session().unwrap();
    let (bytes, logit_type) = (logits.bytes(), logits.logit_type());
    let memory = gpu_memory(bytes, 0);
    let place = gpu_place(&memory, 0);
    let (classes, shape) = (logits.classes(), logits.shape());
    let logits = Logits { copied: None, place, logit_type, classes, shape, owner: PhantomData };
    let found = session.argmax(&logits).unwrap();
    let labels = host(&session, &found.labels);
    drop(session);
    no_violation();
    Argmax { labels, nan_count: found.nan_count }
}

pub fn keep_largest(map: &cpu::Labels, keep: &KeepLargest) -> cpu::Labels {
    let session = GPU.session().unwrap();
    let kept = session.keep_largest(labels(&session, map), keep).unwrap();
    let kept = host(&session, &kept);
    no_violation();
    kept
}

pub fn contour(map: &cpu::Labels) -> cpu::Labels {
    let session = GPU.session().unwrap();
    let contour = session.contour(&labels(&session, map)).unwrap();
    let contour = host(&session, &contour);
    no_violation();
    contour
}

pub fn restore(map: &cpu::Labels, placement: &Placement) -> (cpu::Labels, VoxelCount) {
    let session = GPU.session().unwrap();
    let (restored, voxels) = session.restore(&labels(&session, map), placement).unwrap();
    let restored = host(&session, &restored);
    no_violation();
    (restored, voxels)
}

pub fn count(map: &cpu::Labels, placement: &Placement) -> VoxelCount {
    let session = GPU.session().unwrap();
    let count = session.count(&labels(&session, map), placement).unwrap();
    no_violation();
    count
}

/// Writes to memory of the host and of the GPU, the latter aligned or not.
pub fn write(map: &cpu::Labels, bytes: &mut [u8], label_type: LabelType) -> Result<()> {
    let session = GPU.session().unwrap();
    let labels = labels(&session, map);
    let owner = PhantomData;
    for off in [0, 1] {
        let memory = gpu_memory(bytes, off);
        let place = gpu_place(&memory, off);
        let written = session.write(&labels, Output { place, label_type, owner });
        if written.is_ok() {
            bytes.copy_from_slice(&memory.bytes()[off..]);
        } else {
            return written;
        }
    }
    let on_gpu = bytes.to_vec();
    bytes.fill(0xAA);
    // SAFETY: host memory that is kept until the step is done.
    let place = unsafe { Place::new(bytes.as_mut_ptr() as u64, bytes.len(), MemoryKind::Host) };
    let written = session.write(&labels, Output { place, label_type, owner });
    assert_eq!(bytes, on_gpu);
    no_violation();
    written
}
