//! Masks that are hard for a search for components.

use triton_spleenseg::config::{Connectivity, KeepLargest};
use triton_spleenseg::volume::Shape3;

use crate::host::Host;
use host_kernels::Order;

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

type Pattern = Box<dyn Fn([usize; 3], u64) -> bool>;

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

/// Shapes around the 32 voxels of a word.
fn shapes() -> [Shape3; 4] {
    [[13, 13, 37], [9, 9, 64], [5, 7, 97], [24, 24, 3]].map(|dims| Shape3::new(dims).unwrap())
}

pub fn hosts() -> impl Iterator<Item = Host> {
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

#[test]
fn components_of_every_pattern_in_every_order() {
    let mut hosts = hosts().collect::<Vec<_>>().into_iter().cycle();
    for shape in shapes() {
        for (number, (_, pattern)) in all(shape).into_iter().enumerate() {
            let data = mask(shape, 7, pattern);
            for connectivity in [Connectivity::Faces, Connectivity::Edges, Connectivity::Corners] {
                let num_components = 1 + number % 3;
                let keep = KeepLargest {
                    applied_labels: Some(vec![1]),
                    independent: true,
                    connectivity,
                    num_components,
                };
                hosts.next().unwrap().keep_largest(&data, shape, &keep);
            }
        }
    }
}

#[test]
fn noise_and_spirals_in_all_orders() {
    let shape = Shape3::new([11, 13, 45]).unwrap();
    for (name, pattern) in all(shape) {
        if !["noise at 50 %", "noise at 15 %", "spirals", "serpentine of planes"].contains(&name) {
            continue;
        }
        let data = mask(shape, 11, pattern);
        for host in hosts() {
            for num_components in [1, 4] {
                let connectivity = Connectivity::Corners;
                let keep =
                    KeepLargest { applied_labels: None, independent: true, connectivity, num_components };
                host.keep_largest(&data, shape, &keep);
            }
        }
    }
}

#[test]
fn contours_of_every_pattern() {
    for (shape, host) in shapes().into_iter().zip(hosts()) {
        for (_, pattern) in all(shape) {
            host.contour(&mask(shape, 3, pattern), shape);
        }
    }
}

/// Every kernel with a few blocks at a time, for ThreadSanitizer, which is slow.
pub fn small_volumes_on_several_threads() {
    use triton_spleenseg::config::{ResizeMode, Scale};
    use triton_spleenseg::native::Placement;
    use triton_spleenseg::pipeline::CropScaleResize;
    use triton_spleenseg::volume::{BoundingBox, LabelType, LogitType, VoxelType};

    let host = Host { block: 64, multiprocessors: 1, order: Order { seed: 9, workers: 2 } };
    let shape = Shape3::new([4, 5, 45]).unwrap();
    let (crop, size) = (BoundingBox { start: [0, 1, -2], end: [4, 5, 44] }, Shape3::new([3, 3, 50]).unwrap());
    let scale =
        Scale { a_min: -57.0, a_span: 221.0, b: Some((1.0, 0.0)), lowest: Some(0.0), highest: Some(1.0) };
    let mut next = numbers(5);
    let values: Vec<u8> =
        (0..shape.count()).flat_map(|_| ((next() % 400) as f32 - 150.0).to_ne_bytes()).collect();
    host.find_foreground(&values, VoxelType::Fp32, shape, &scale, 1);
    for mode in [ResizeMode::Area, ResizeMode::Nearest, ResizeMode::Trilinear { align_corners: false }] {
        for size in [size, Shape3::new([1, 1, 1]).unwrap(), Shape3::new([1, 1, 2]).unwrap()] {
            host.crop_scale_resize(
                &values,
                VoxelType::Fp32,
                shape,
                &CropScaleResize { scale, crop, size, mode },
            );
        }
    }
    let half = Shape3::new([4, 5, 22]).unwrap();
    host.argmax(&values[..half.count() * 8], LogitType::Fp32, 2, half);
    for (name, pattern) in all(shape) {
        if !["full", "noise at 15 %", "noise at 50 %", "spirals"].contains(&name) {
            continue;
        }
        let data = mask(shape, 11, pattern);
        let connectivity = Connectivity::Corners;
        let keep = KeepLargest { applied_labels: None, independent: true, connectivity, num_components: 2 };
        host.keep_largest(&data, shape, &keep);
    }
    let data = mask(shape, 3, |_, chance| chance % 2 == 0);
    host.contour(&data, shape);
    host.convert(&data, shape, LabelType::Fp16);
    host.native(&data, shape, &Placement { crop, input_shape: shape, align_corners: false });
}
