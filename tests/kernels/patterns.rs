//! Masks that are hard for a search for components.

use triton_spleenseg::volume::Shape3;

/// A generator that a seed starts.
pub fn numbers(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed ^ seed >> 29) >> 16
    }
}

/// 1 where the rule says so, of the voxel's indices and of chance.
pub fn mask(shape: Shape3, seed: u64, mut is_set: impl FnMut([usize; 3], u64) -> bool) -> Vec<u8> {
    let ([_, w, d], mut next) = (shape.dims(), numbers(seed));
    (0..shape.count()).map(|at| u8::from(is_set([at / (w * d), at / d % w, at % d], next()))).collect()
}

/// Walls one voxel apart with a gap at alternating ends: one path through the whole plane or volume.
fn serpentine([a, b]: [usize; 2], length: usize) -> bool {
    a % 2 == 0 || b == if a % 4 == 1 { length - 1 } else { 0 }
}

/// A spiral in a plane of this size.
fn spiral([a, b]: [usize; 2], size: usize) -> bool {
    if a >= size || b >= size {
        return false;
    }
    let ring = a.min(b).min(size - 1 - a).min(size - 1 - b);
    // Every other ring, joined to the next one at a corner.
    ring % 2 == 0 || (b == ring && a == ring + 1)
}

/// Whether a voxel is set, of its indices and of chance.
type Pattern = Box<dyn Fn([usize; 3], u64) -> bool>;

/// All of them, for masks of this size.
pub fn all(shape: Shape3) -> Vec<(&'static str, Pattern)> {
    let [h, w, d] = shape.dims();
    let noise = |percent| -> Pattern { Box::new(move |_, chance| chance % 100 < percent) };
    vec![
        ("full", Box::new(|_, _| true)),
        ("empty", Box::new(|_, _| false)),
        ("noise at 5 %", noise(5)),
        ("noise at 15 %", noise(15)),
        ("noise at 50 %", noise(50)),
        ("noise at 90 %", noise(90)),
        ("checkerboard", Box::new(|[i, j, k], _| (i + j + k) % 2 == 0)),
        ("every other voxel along all axes", Box::new(|[i, j, k], _| i % 2 == 0 && j % 2 == 0 && k % 2 == 0)),
        ("comb along the last axis", Box::new(move |[_, j, k], _| j == 0 || k % 2 == 0)),
        ("comb closed at its far end", Box::new(move |[i, j, k], _| i + 1 == h || (j + k) % 3 == 0)),
        ("serpentine of columns", Box::new(move |[i, j, k], _| i % 2 == 0 && serpentine([j, k], d))),
        ("serpentine of planes", Box::new(move |[i, j, k], _| k % 3 == 1 && serpentine([i, j], w))),
        (
            "spirals",
            Box::new(move |[i, j, k], _| {
                k % 2 == 0 && spiral([i, j], h.min(w)) || k % 8 == 1 && i == 0 && j == 0
            }),
        ),
        ("diagonal lines", Box::new(|[i, j, k], _| i == j && j % 4 == k % 4)),
        ("falling lines", Box::new(|[i, j, k], _| (i + k) % 7 == 0 && (j + k) % 5 == 0)),
    ]
}
