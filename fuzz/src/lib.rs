//! What the targets make of libFuzzer's bytes, and the two forms of each step that must agree.

use std::sync::LazyLock;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use triton_spleenseg::cpu::reference::Reference;
use triton_spleenseg::cpu::{Cpu, Labels, Threads};
use triton_spleenseg::volume::Shape3;

/// The steps in their plainest form.
pub static REFERENCE: LazyLock<Reference> = LazyLock::new(Reference::default);
/// Three threads, so that the pieces of the work do not come out even. Targets run on them: a step that begins elsewhere waits.
pub static THREADS: LazyLock<Threads> = LazyLock::new(|| Threads::new(3).expect("threads"));
/// The steps as they are served.
pub static CPU: LazyLock<Cpu> = LazyLock::new(|| Cpu::new(THREADS.clone(), 1));

/// A volume of few voxels, with any of its axes short, or as long as several words of 64 bits.
pub fn shape(u: &mut Unstructured) -> Result<Shape3> {
    let mut most = 4096;
    let mut dims = [1; 3];
    let first = u.int_in_range(0..=2)?;
    for turn in 0..3 {
        let axis = (first + turn) % 3;
        dims[axis] = u.int_in_range(1..=most.min(200))?;
        most /= dims[axis];
    }
    Ok(Shape3::new(dims).expect("a volume that can be addressed"))
}

/// Label maps: the rest of the bytes, again and again, so that few bytes make a whole pattern.
pub fn labels(u: &mut Unstructured, highest: u8) -> Result<Labels> {
    let shape = shape(u)?;
    let pattern = u.bytes(u.len())?;
    let data: Vec<u8> = match pattern.is_empty() {
        true => vec![highest; shape.count()],
        // One bit a voxel where there are no more labels than two.
        false if highest == 1 => {
            (0..shape.count()).map(|at| pattern[at / 8 % pattern.len()] >> (at % 8) & 1).collect()
        }
        false => (0..shape.count()).map(|at| pattern[at % pattern.len()] % (highest + 1)).collect(),
    };
    Ok(Labels::new(&data, shape).expect("one label for each voxel"))
}

/// The same label map once more: keeping the largest components takes its own.
pub fn copy(labels: &Labels) -> Labels {
    Labels::new(labels.data(), labels.shape()).expect("one label for each voxel")
}
