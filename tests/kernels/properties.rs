//! Properties that hold for any input: the kernels give what the CPU gives.

use host_kernels::Order;
use proptest::prelude::*;
use triton_spleenseg::config::{Connectivity, KeepLargest, ResizeMode, Scale};
use triton_spleenseg::native::Placement;
use triton_spleenseg::pipeline::CropScaleResize;
use triton_spleenseg::volume::{BoundingBox, LabelType, LogitType, Shape3, VoxelType};

use crate::host::Host;
use crate::patterns::numbers;

fn shapes() -> impl Strategy<Value = Shape3> {
    let axis = || prop_oneof![1..4i64, 1..12i64, 1..140i64];
    [axis(), axis(), axis()]
        .prop_filter("small enough", |dims| dims.iter().product::<i64>() < 20_000)
        .prop_map(|dims| Shape3::new(dims).unwrap())
}

fn hosts() -> impl Strategy<Value = Host> {
    let block = prop_oneof![Just(32u32), Just(64), Just(96), Just(256)];
    (block, 1..3u32, any::<u64>().prop_map(|seed| seed >> (seed % 64)), 1..3u32).prop_map(
        |(block, multiprocessors, seed, workers)| Host {
            block,
            multiprocessors,
            order: Order { seed, workers },
        },
    )
}

/// Intensities around the default window, with NaN, infinities and the window's own ends among them.
fn intensities(count: usize, seed: u64, odd: u64) -> Vec<f32> {
    let mut next = numbers(seed);
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -57.0, 164.0, -0.0];
    (0..count)
        .map(|_| match next() % 1000 {
            n if n < odd => special[next() as usize % special.len()],
            _ => (next() % 4000) as f32 / 8.0 - 300.0,
        })
        .collect()
}

fn bytes(values: &[f32], voxel_type: VoxelType) -> Vec<u8> {
    match voxel_type {
        VoxelType::Fp32 => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
        VoxelType::Int16 => values.iter().flat_map(|value| (*value as i16).to_ne_bytes()).collect(),
    }
}

fn voxel_types() -> impl Strategy<Value = VoxelType> {
    prop_oneof![Just(VoxelType::Fp32), Just(VoxelType::Int16)]
}

/// Monotonic and not: a negative span has no threshold.
fn scales() -> impl Strategy<Value = Scale> {
    let b = prop_oneof![Just(None), Just(Some((1.0, 0.0))), Just(Some((3.0, -1.5))), Just(Some((-1.0, 0.5)))];
    (-200.0..200.0f32, 1.0..1000.0f32, b, any::<bool>(), any::<bool>()).prop_map(
        |(a_min, a_span, b, low, high)| {
            let (span, min) = b.unwrap_or((1.0, 0.0));
            Scale { a_min, a_span, b, lowest: low.then_some(min), highest: high.then_some(min + span) }
        },
    )
}

/// Boxes inside the volume, grown beyond it by up to 3 voxels.
fn boxes(shape: Shape3) -> impl Strategy<Value = BoundingBox> {
    let axis = |size: usize| {
        let size = size as i64;
        (0..size, 0..=3i64, 0..=3i64).prop_flat_map(move |(start, before, after)| {
            (start + 1..=size).prop_map(move |end| (start - before, end + after))
        })
    };
    let [h, w, d] = shape.dims();
    [axis(h), axis(w), axis(d)]
        .prop_map(|axes| BoundingBox { start: axes.map(|axis| axis.0), end: axes.map(|axis| axis.1) })
}

fn labels(highest: u8) -> impl Strategy<Value = (Shape3, Vec<u8>)> {
    (shapes(), any::<u64>(), 1..100u64).prop_map(move |(shape, seed, density)| {
        let mut next = numbers(seed);
        let label = |chance: u64| 1 + (chance % u64::from(highest)) as u8;
        let data =
            (0..shape.count()).map(|_| if next() % 100 < density { label(next()) } else { 0 }).collect();
        (shape, data)
    })
}

fn keeps() -> impl Strategy<Value = KeepLargest> {
    let applied = prop_oneof![
        2 => Just(None), 1 => Just(Some(vec![1])), 1 => Just(Some(vec![2, 1])), 1 => Just(Some(vec![0])),
        1 => Just(Some(vec![])), 1 => Just(Some(vec![3, 300])),
    ];
    let connectivity =
        prop_oneof![Just(Connectivity::Faces), Just(Connectivity::Edges), Just(Connectivity::Corners)];
    let num_components = prop_oneof![0..4usize, 0..200usize, Just(usize::MAX >> 1)];
    (applied, any::<bool>(), connectivity, num_components).prop_map(
        |(applied_labels, independent, connectivity, num_components)| KeepLargest {
            applied_labels,
            independent,
            connectivity,
            num_components,
        },
    )
}

fn modes() -> impl Strategy<Value = ResizeMode> {
    prop_oneof![
        4 => Just(ResizeMode::Area),
        1 => Just(ResizeMode::Nearest),
        1 => Just(ResizeMode::NearestExact),
        1 => Just(ResizeMode::Trilinear { align_corners: false }),
        1 => Just(ResizeMode::Trilinear { align_corners: true }),
    ]
}

/// A size of the result: any, that of the crop, and one voxel.
fn sizes(crop: BoundingBox) -> impl Strategy<Value = Shape3> {
    let any = [1..20i64, 1..20i64, 1..90i64].prop_map(|size| Shape3::new(size).unwrap());
    let same = crop.size().unwrap();
    prop_oneof![6 => any, 1 => Just(same), 1 => Just(Shape3::new([1, 1, 1]).unwrap())]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn foreground(host in hosts(), shape in shapes(), voxel_type in voxel_types(), scale in scales(), seed: u64, odd in 0..100u64, pieces in 1..4usize) {
        let values = intensities(shape.count(), seed, odd);
        host.find_foreground(&bytes(&values, voxel_type), voxel_type, shape, &scale, pieces);
        // A single voxel of foreground.
        let unit = Scale { a_min: -57.0, a_span: 221.0, b: None, lowest: Some(0.0), highest: Some(1.0) };
        let mut values = vec![-1000.0; shape.count()];
        values[seed as usize % shape.count()] = 100.0;
        let found = host.find_foreground(&bytes(&values, voxel_type), voxel_type, shape, &unit, pieces);
        prop_assert_eq!(found.bounding_box.unwrap().size().unwrap().count(), 1);
    }

    #[test]
    fn resize(
        host in hosts(),
        (shape, crop, size) in shapes().prop_flat_map(|shape| (Just(shape), boxes(shape)))
            .prop_flat_map(|(shape, crop)| (Just(shape), Just(crop), sizes(crop))),
        mode in modes(),
        voxel_type in voxel_types(),
        seed: u64,
        odd in 0..3u64,
    ) {
        let scale = Scale { a_min: -57.0, a_span: 221.0, b: Some((1.0, 0.0)), lowest: Some(0.0), highest: Some(1.0) };
        let plan = CropScaleResize { scale, crop, size, mode };
        host.crop_scale_resize(&bytes(&intensities(shape.count(), seed, odd), voxel_type), voxel_type, shape, &plan);
    }

    #[test]
    fn argmax(host in hosts(), shape in shapes(), classes in 1..5usize, seed: u64, odd in 0..300u64) {
        let mut values = intensities(classes * shape.count(), seed, odd);
        for value in values.iter_mut().step_by(3) {
            *value = value.round() % 2.0; // ties, and zeros of both signs
        }
        let halves: Vec<u8> = values.iter().flat_map(|value| half::f16::from_f32(*value).to_ne_bytes()).collect();
        host.argmax(&bytes(&values, VoxelType::Fp32), LogitType::Fp32, classes, shape);
        host.argmax(&halves, LogitType::Fp16, classes, shape);
    }

    #[test]
    fn components_of_a_mask(host in hosts(), (shape, data) in labels(1), keep in keeps()) {
        host.keep_largest(&data, shape, &keep);
    }

    #[test]
    fn components_of_labels(host in hosts(), (shape, data) in labels(4), keep in keeps()) {
        host.keep_largest(&data, shape, &keep);
    }

    #[test]
    fn contours(host in hosts(), (shape, data) in prop_oneof![3 => labels(1), 1 => labels(3)]) {
        host.contour(&data, shape);
    }

    #[test]
    fn native(
        host in hosts(),
        (shape, data) in labels(3),
        (input_shape, crop) in shapes().prop_flat_map(|shape| (Just(shape), boxes(shape))),
        align_corners: bool,
    ) {
        host.native(&data, shape, &Placement { crop, input_shape, align_corners });
    }

    #[test]
    fn outputs(host in hosts(), (shape, data) in prop_oneof![labels(1), labels(200)]) {
        for label_type in [LabelType::Fp32, LabelType::Fp16, LabelType::Uint8, LabelType::Int32, LabelType::Int64, LabelType::Bool] {
            host.convert(&data, shape, label_type);
        }
    }
}

#[test]
fn large_windows_are_summed_in_the_order_of_the_reference() {
    let shape = Shape3::new([40, 30, 50]).unwrap();
    let scale =
        Scale { a_min: -57.0, a_span: 221.0, b: Some((1.0, 0.0)), lowest: Some(0.0), highest: Some(1.0) };
    let crop = BoundingBox { start: [0, 0, -3], end: [40, 30, 50] };
    for values in [vec![33.3; shape.count()], intensities(shape.count(), 5, 0)] {
        for size in [[2, 2, 2], [1, 1, 2], [1, 1, 1], [3, 4, 3]] {
            let plan =
                CropScaleResize { scale, crop, size: Shape3::new(size).unwrap(), mode: ResizeMode::Area };
            Host::default().crop_scale_resize(
                &bytes(&values, VoxelType::Fp32),
                VoxelType::Fp32,
                shape,
                &plan,
            );
        }
    }
}
