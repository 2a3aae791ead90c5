//! What the steps are given: any input, and inputs that are hard for them.

use std::fmt;

use proptest::prelude::*;
use triton_spleenseg::config::{Connectivity, KeepLargest, ResizeMode, Scale};
use triton_spleenseg::native::Placement;
use triton_spleenseg::pipeline::CropScaleResize;
use triton_spleenseg::volume::{BoundingBox, LabelType, LogitType, Shape3, VoxelType};

use crate::patterns::{self, mask, numbers};

/// A step, and what it is given.
#[derive(Clone, Debug)]
pub enum Case {
    Foreground {
        image: Image,
        scale: Scale,
        /// How many launches look at a part each.
        pieces: usize,
    },
    Resize {
        image: Image,
        plan: CropScaleResize,
    },
    Argmax(Scores),
    /// With indices of both widths.
    KeepLargest {
        map: Map,
        keep: KeepLargest,
    },
    /// In both ways.
    Contour(Map),
    /// With an output and without.
    Native {
        map: Map,
        placement: Placement,
    },
    Convert {
        map: Map,
        label_type: LabelType,
    },
}

/// All but the data.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreground { image, scale, pieces } => {
                write!(f, "foreground of {image}, {scale:?}, {pieces} pieces")
            }
            Self::Resize { image, plan } => write!(f, "resize of {image}, {plan:?}"),
            Self::Argmax(scores) => {
                write!(f, "argmax of {}, {:?}, {} classes", scores.shape, scores.logit_type, scores.classes)
            }
            Self::KeepLargest { map, keep } => write!(f, "components of {}, {keep:?}", map.shape),
            Self::Contour(map) => write!(f, "contour of {}", map.shape),
            Self::Native { map, placement } => write!(f, "restore of {}, {placement:?}", map.shape),
            Self::Convert { map, label_type } => write!(f, "write of {}, {label_type:?}", map.shape),
        }
    }
}

/// A volume.
#[derive(Clone, Debug)]
pub struct Image {
    pub bytes: Vec<u8>,
    pub voxel_type: VoxelType,
    pub shape: Shape3,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}", self.shape, self.voxel_type)
    }
}

/// A network's reply.
#[derive(Clone, Debug)]
pub struct Scores {
    pub bytes: Vec<u8>,
    pub logit_type: LogitType,
    pub classes: usize,
    pub shape: Shape3,
}

/// A label map.
#[derive(Clone, Debug)]
pub struct Map {
    pub data: Vec<u8>,
    pub shape: Shape3,
}

/// The window of the shipped model.
pub const WINDOW: Scale =
    Scale { a_min: -57.0, a_span: 221.0, b: Some((1.0, 0.0)), lowest: Some(0.0), highest: Some(1.0) };

fn shapes() -> impl Strategy<Value = Shape3> {
    let axis = || prop_oneof![1..4i64, 1..12i64, 1..140i64];
    // Kernels take 16 voxels of a row at a time where all rows begin at a multiple of that.
    let row = prop_oneof![3 => axis(), 2 => (1..8i64).prop_map(|groups| 16 * groups)];
    (axis(), axis(), row)
        .prop_map(<[i64; 3]>::from)
        .prop_filter("small enough", |dims| dims.iter().product::<i64>() < 20_000)
        .prop_map(|dims| Shape3::new(dims).unwrap())
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

/// Those of the window, with and without an output range and limits. Its values stay small, since the tolerance is absolute.
fn scales_of_the_window() -> impl Strategy<Value = Scale> {
    scales().prop_map(|scale| {
        let (span, _) = scale.b.unwrap_or((1.0, 0.0));
        Scale { a_min: WINDOW.a_min, a_span: WINDOW.a_span * span.abs(), ..scale }
    })
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

fn labels(highest: u8) -> impl Strategy<Value = Map> {
    (shapes(), any::<u64>(), 1..100u64).prop_map(move |(shape, seed, density)| {
        let mut next = numbers(seed);
        let label = |chance: u64| 1 + (chance % u64::from(highest)) as u8;
        let data =
            (0..shape.count()).map(|_| if next() % 100 < density { label(next()) } else { 0 }).collect();
        Map { data, shape }
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

/// Cases of one step, made of the same numbers.
pub fn foreground() -> impl Strategy<Value = Vec<Case>> {
    (shapes(), voxel_types(), scales(), any::<u64>(), 0..100u64, 1..4usize).prop_map(
        |(shape, voxel_type, scale, seed, odd, pieces)| {
            let image = |values: &[f32]| Image { bytes: bytes(values, voxel_type), voxel_type, shape };
            let any = image(&intensities(shape.count(), seed, odd));
            // A single voxel of foreground.
            let unit = Scale { b: None, ..WINDOW };
            let mut values = vec![-1000.0; shape.count()];
            values[seed as usize % shape.count()] = 100.0;
            vec![
                Case::Foreground { image: any, scale, pieces },
                Case::Foreground { image: image(&values), scale: unit, pieces },
            ]
        },
    )
}

pub fn resize() -> impl Strategy<Value = Vec<Case>> {
    let geometry = shapes()
        .prop_flat_map(|shape| (Just(shape), boxes(shape)))
        .prop_flat_map(|(shape, crop)| (Just(shape), Just(crop), sizes(crop)));
    (geometry, modes(), scales_of_the_window(), voxel_types(), any::<u64>(), 0..3u64).prop_map(
        |((shape, crop, size), mode, scale, voxel_type, seed, odd)| {
            let bytes = bytes(&intensities(shape.count(), seed, odd), voxel_type);
            let plan = CropScaleResize { scale, crop, size, mode };
            vec![Case::Resize { image: Image { bytes, voxel_type, shape }, plan }]
        },
    )
}

/// Windows that are summed in the order of the reference.
pub fn large_windows() -> Vec<Case> {
    let shape = Shape3::new([40, 30, 50]).unwrap();
    let crop = BoundingBox { start: [0, 0, -3], end: [40, 30, 50] };
    let mut cases = Vec::new();
    for values in [vec![33.3; shape.count()], intensities(shape.count(), 5, 0)] {
        for size in [[2, 2, 2], [1, 1, 2], [1, 1, 1], [3, 4, 3]] {
            let (voxel_type, size) = (VoxelType::Fp32, Shape3::new(size).unwrap());
            let image = Image { bytes: bytes(&values, voxel_type), voxel_type, shape };
            let plan = CropScaleResize { scale: WINDOW, crop, size, mode: ResizeMode::Area };
            cases.push(Case::Resize { image, plan });
        }
    }
    cases
}

pub fn argmax() -> impl Strategy<Value = Vec<Case>> {
    (shapes(), 1..5usize, any::<u64>(), 0..300u64).prop_map(|(shape, classes, seed, odd)| {
        let mut values = intensities(classes * shape.count(), seed, odd);
        for value in values.iter_mut().step_by(3) {
            *value = value.round() % 2.0; // ties, and zeros of both signs
        }
        let halves = values.iter().flat_map(|value| half::f16::from_f32(*value).to_ne_bytes()).collect();
        [(bytes(&values, VoxelType::Fp32), LogitType::Fp32), (halves, LogitType::Fp16)]
            .map(|(bytes, logit_type)| Case::Argmax(Scores { bytes, logit_type, classes, shape }))
            .into()
    })
}

pub fn components_of_a_mask() -> impl Strategy<Value = Vec<Case>> {
    (labels(1), keeps()).prop_map(|(map, keep)| vec![Case::KeepLargest { map, keep }])
}

pub fn components_of_labels() -> impl Strategy<Value = Vec<Case>> {
    (labels(4), keeps()).prop_map(|(map, keep)| vec![Case::KeepLargest { map, keep }])
}

pub fn contours() -> impl Strategy<Value = Vec<Case>> {
    prop_oneof![3 => labels(1), 1 => labels(3)].prop_map(|map| vec![Case::Contour(map)])
}

pub fn native() -> impl Strategy<Value = Vec<Case>> {
    let image = shapes().prop_flat_map(|shape| (Just(shape), boxes(shape)));
    (labels(3), image, any::<bool>()).prop_map(|(map, (input_shape, crop), align_corners)| {
        vec![Case::Native { map, placement: Placement { crop, input_shape, align_corners } }]
    })
}

pub fn outputs() -> impl Strategy<Value = Vec<Case>> {
    use LabelType::{Bool, Fp16, Fp32, Int32, Int64, Uint8};
    prop_oneof![labels(1), labels(200)].prop_map(|map| {
        let case = |label_type| Case::Convert { map: map.clone(), label_type };
        [Fp32, Fp16, Uint8, Int32, Int64, Bool].map(case).into()
    })
}

/// Cases of any step.
pub fn any_step() -> impl Strategy<Value = Vec<Case>> {
    prop_oneof![
        foreground().boxed(),
        resize().boxed(),
        argmax().boxed(),
        components_of_a_mask().boxed(),
        components_of_labels().boxed(),
        contours().boxed(),
        native().boxed(),
        outputs().boxed(),
    ]
}

/// Components of every mask of [`patterns`](crate::patterns), by each of the neighbourhoods.
pub fn components_of_every_pattern(shape: Shape3) -> impl Iterator<Item = Case> {
    let connectivities = [Connectivity::Faces, Connectivity::Edges, Connectivity::Corners];
    patterns::all(shape).into_iter().enumerate().flat_map(move |(number, (_, pattern))| {
        let data = mask(shape, 7, pattern);
        connectivities.map(|connectivity| {
            let applied_labels = Some(vec![1]);
            let num_components = 1 + number % 3;
            let keep = KeepLargest { applied_labels, independent: true, connectivity, num_components };
            Case::KeepLargest { map: Map { data: data.clone(), shape }, keep }
        })
    })
}

/// Contours of every mask of [`patterns`](crate::patterns).
pub fn contours_of_every_pattern(shape: Shape3) -> impl Iterator<Item = Case> {
    let map = move |pattern| Map { data: mask(shape, 3, pattern), shape };
    patterns::all(shape).into_iter().map(move |(_, pattern)| Case::Contour(map(pattern)))
}

/// Each step on a few voxels, for what is slow.
pub fn small() -> Vec<Case> {
    let shape = Shape3::new([4, 5, 45]).unwrap();
    let (crop, size) = (BoundingBox { start: [0, 1, -2], end: [4, 5, 44] }, Shape3::new([3, 3, 50]).unwrap());
    let mut next = numbers(5);
    let values: Vec<f32> = (0..shape.count()).map(|_| (next() % 400) as f32 - 150.0).collect();
    let voxel_type = VoxelType::Fp32;
    let image = Image { bytes: bytes(&values, voxel_type), voxel_type, shape };
    let mut cases = vec![Case::Foreground { image: image.clone(), scale: WINDOW, pieces: 1 }];
    for mode in [ResizeMode::Area, ResizeMode::Nearest, ResizeMode::Trilinear { align_corners: false }] {
        for size in [size, Shape3::new([1, 1, 1]).unwrap(), Shape3::new([1, 1, 2]).unwrap()] {
            let plan = CropScaleResize { scale: WINDOW, crop, size, mode };
            cases.push(Case::Resize { image: image.clone(), plan });
        }
    }
    let half = Shape3::new([4, 5, 22]).unwrap();
    let bytes = image.bytes[..half.count() * 8].to_vec();
    cases.push(Case::Argmax(Scores { bytes, logit_type: LogitType::Fp32, classes: 2, shape: half }));
    for (name, pattern) in patterns::all(shape) {
        if ["full", "noise at 15 %", "noise at 50 %", "spirals"].contains(&name) {
            let connectivity = Connectivity::Corners;
            let keep =
                KeepLargest { applied_labels: None, independent: true, connectivity, num_components: 2 };
            cases.push(Case::KeepLargest { map: Map { data: mask(shape, 11, pattern), shape }, keep });
        }
    }
    let map = Map { data: mask(shape, 3, |_, chance| chance % 2 == 0), shape };
    let placement = Placement { crop, input_shape: shape, align_corners: false };
    cases.push(Case::Contour(map.clone()));
    cases.push(Case::Convert { map: map.clone(), label_type: LabelType::Fp16 });
    cases.push(Case::Native { map, placement });
    cases
}
