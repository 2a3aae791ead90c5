//! Properties that hold for any input: the faster form of each step gives what the reference gives.

use proptest::prelude::*;

use super::{Input, Labels, Logits, both};
use crate::config::{Connectivity, KeepLargest, ResizeMode, Scale};
use crate::native::Placement;
use crate::pipeline::CropScaleResize;
use crate::volume::{BoundingBox, LabelType, LogitType, Shape3, VoxelType};

/// Shapes with short and long axes, across the 64 voxels of a word; some with an axis of 1.
fn shapes() -> impl Strategy<Value = Shape3> {
    let axis = || prop_oneof![1..4i64, 1..12i64, 1..140i64];
    [axis(), axis(), axis()]
        .prop_filter("small enough for the reference", |dims| dims.iter().product::<i64>() < 60_000)
        .prop_map(|dims| Shape3::new(dims).unwrap())
}

/// A generator that the test's own seed starts: volumes are too large to be shrunk voxel by voxel.
fn numbers(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed ^ seed >> 29) >> 16
    }
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

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn scales() -> impl Strategy<Value = Scale> {
    let b = prop_oneof![Just(None), Just(Some((1.0, 0.0))), Just(Some((3.0, -1.5))), Just(Some((0.5, 0.25)))];
    let limit = || prop_oneof![Just(None), Just(Some(()))];
    (-500.0..200.0f32, 1.0..1000.0f32, b, limit(), limit()).prop_map(|(a_min, a_span, b, low, high)| {
        let (span, min) = b.unwrap_or((1.0, 0.0));
        Scale { a_min, a_span, b, lowest: low.map(|()| min), highest: high.map(|()| min + span) }
    })
}

/// The usual range, and ranges of other spans, also falling ones, with and without limits.
fn resized_scales() -> impl Strategy<Value = Scale> {
    let usual =
        Scale { a_min: -57.0, a_span: 221.0, b: Some((1.0, 0.0)), lowest: Some(0.0), highest: Some(1.0) };
    let falling = |mut scale: Scale| {
        let (span, min) = scale.b.unwrap_or((1.0, 0.0));
        scale.b = Some((-span, min));
        (scale.lowest, scale.highest) = (scale.highest.map(|_| min - span), scale.lowest.map(|_| min));
        scale
    };
    let others = || scales().prop_filter("a span that magnifies no rounding", |scale| scale.a_span > 50.0);
    prop_oneof![2 => Just(usual), 2 => others(), 1 => others().prop_map(falling)]
}

/// Boxes inside the volume, grown beyond it by up to 3 voxels.
fn boxes(shape: Shape3) -> impl Strategy<Value = BoundingBox> {
    let axis = |size: usize| {
        let size = size as i64;
        (0..size, -3..=3i64, -3..=3i64).prop_flat_map(move |(start, before, after)| {
            (start + 1..=size)
                .prop_map(move |end| ((start + before).min(end - 1), (end + after).max(start + 1)))
        })
    };
    let [h, w, d] = shape.dims();
    [axis(h), axis(w), axis(d)]
        .prop_map(|axes| BoundingBox { start: axes.map(|axis| axis.0), end: axes.map(|axis| axis.1) })
        .prop_filter("a box of at least one voxel of the image", move |b| {
            (0..3).all(|axis| {
                b.start[axis] < shape.dims()[axis] as i64 && b.end[axis] > 0 && b.start[axis] < b.end[axis]
            })
        })
}

/// Label maps: noise of any density, smooth blobs, stripes, and all of one label.
fn labels(highest: u8) -> impl Strategy<Value = (Shape3, Vec<u8>)> {
    (shapes(), any::<u64>(), 0..4u8, 1..100u64).prop_map(move |(shape, seed, pattern, density)| {
        let mut next = numbers(seed);
        let [_, w, d] = shape.dims();
        let period = 1 + seed as usize % 9;
        let data = (0..shape.count())
            .map(|at| {
                let (i, j, k) = (at / (w * d), at / d % w, at % d);
                let label = 1 + (next() % u64::from(highest)) as u8;
                let set = match pattern {
                    0 => next() % 100 < density,
                    1 => (i / period + j / period + k / period).is_multiple_of(2),
                    2 => (i + j + k).is_multiple_of(period + 1),
                    _ => true,
                };
                if set { label } else { 0 }
            })
            .collect();
        (shape, data)
    })
}

fn keeps() -> impl Strategy<Value = KeepLargest> {
    let applied = prop_oneof![
        Just(None),
        Just(Some(vec![1])),
        Just(Some(vec![2, 1])),
        Just(Some(vec![0])),
        Just(Some(vec![])),
        Just(Some(vec![3, 300])),
    ];
    let connectivity =
        prop_oneof![Just(Connectivity::Faces), Just(Connectivity::Edges), Just(Connectivity::Corners)];
    // Mostly the default search, which has a way of its own.
    let (connectivity, num_components) = (
        prop_oneof![2 => Just(Connectivity::Corners), 1 => connectivity],
        prop_oneof![1 => Just(1), 1 => 0..4usize],
    );
    (applied, any::<bool>(), connectivity, num_components).prop_map(
        |(applied_labels, independent, connectivity, num_components)| KeepLargest {
            applied_labels,
            independent,
            connectivity,
            num_components,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn foreground(shape in shapes(), scale in scales(), seed: u64, odd in 0..100u64) {
        let bytes = bytes(&intensities(shape.count(), seed, odd));
        both::find_foreground(&Input::new(&bytes, VoxelType::Fp32, shape).unwrap(), &scale);
        // The same bytes as twice as many INT16 voxels, along the last axis.
        let [h, w, d] = shape.dims().map(|size| size as i64);
        let twice = Shape3::new([h, w, 2 * d]).unwrap();
        both::find_foreground(&Input::new(&bytes, VoxelType::Int16, twice).unwrap(), &scale);
    }

    #[test]
    fn one_voxel_of_foreground(shape in shapes(), at: prop::sample::Index) {
        let mut values = vec![-1000.0f32; shape.count()];
        values[at.index(shape.count())] = 100.0;
        let bytes = bytes(&values);
        let scale = Scale { a_min: -57.0, a_span: 221.0, b: None, lowest: Some(0.0), highest: Some(1.0) };
        let found = both::find_foreground(&Input::new(&bytes, VoxelType::Fp32, shape).unwrap(), &scale);
        prop_assert_eq!(found.bounding_box.unwrap().size().unwrap().count(), 1);
    }

    #[test]
    fn resize(
        (shape, crop) in shapes().prop_flat_map(|shape| (Just(shape), boxes(shape))),
        size in [1..40i64, 1..40i64, 1..150i64],
        mode in prop_oneof![4 => Just(ResizeMode::Area), 1 => Just(ResizeMode::Nearest), 1 => Just(ResizeMode::Trilinear { align_corners: false })],
        seed: u64,
        odd in 0..3u64,
        narrow: bool,
        scale in resized_scales(),
    ) {
        let plan = CropScaleResize { scale, crop, size: Shape3::new(size).unwrap(), mode };
        let values = intensities(shape.count(), seed, odd);
        if narrow {
            let narrow: Vec<u8> = values.iter().flat_map(|value| (*value as i16).to_ne_bytes()).collect();
            both::crop_scale_resize(&Input::new(&narrow, VoxelType::Int16, shape).unwrap(), &plan);
        } else {
            both::crop_scale_resize(&Input::new(&bytes(&values), VoxelType::Fp32, shape).unwrap(), &plan);
        }
    }

    #[test]
    fn argmax(shape in shapes(), classes in 2..5usize, seed: u64, odd in 0..300u64) {
        let mut values = intensities(classes * shape.count(), seed, odd);
        for value in values.iter_mut().step_by(3) {
            *value = value.round() % 2.0; // ties
        }
        let halves: Vec<u8> = values.iter().flat_map(|value| half::f16::from_f32(*value).to_ne_bytes()).collect();
        both::argmax(&Logits::new(&bytes(&values), LogitType::Fp32, classes, shape).unwrap());
        both::argmax(&Logits::new(&halves, LogitType::Fp16, classes, shape).unwrap());
    }

    #[test]
    fn components_of_a_mask((shape, data) in labels(1), keep in keeps()) {
        both::keep_largest(&Labels::new(&data, shape).unwrap(), &keep);
    }

    #[test]
    fn components_of_labels((shape, data) in labels(4), keep in keeps()) {
        both::keep_largest(&Labels::new(&data, shape).unwrap(), &keep);
    }

    #[test]
    fn contours((shape, data) in prop_oneof![3 => labels(1), 1 => labels(3)]) {
        both::contour(&Labels::new(&data, shape).unwrap());
    }

    #[test]
    fn the_way_back(
        (grid, data) in prop_oneof![3 => labels(1), 1 => labels(200)],
        (input_shape, crop) in shapes().prop_flat_map(|shape| (Just(shape), boxes(shape))),
        align_corners: bool,
    ) {
        let labels = Labels::new(&data, grid).unwrap();
        let placement = Placement { crop, input_shape, align_corners };
        let native = both::restore(&labels, &placement);
        let set = native.data().iter().filter(|label| **label > 0).count() as u64;
        prop_assert_eq!(both::count(&labels, &placement).native, set);
    }

    #[test]
    fn outputs((shape, data) in labels(200)) {
        let labels = Labels::new(&data, shape).unwrap();
        for label_type in [LabelType::Fp32, LabelType::Fp16, LabelType::Uint8, LabelType::Int32, LabelType::Int64, LabelType::Bool] {
            let mut bytes = vec![0; shape.count() * label_type.size()];
            let _ = both::write(&labels, &mut bytes, label_type);
        }
    }
}
