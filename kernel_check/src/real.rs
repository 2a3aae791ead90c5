//! Volumes of the sizes that the pipeline is used with.

use triton_spleenseg::config::ResizeMode;
use triton_spleenseg::native::Placement;
use triton_spleenseg::pipeline::CropScaleResize;
use triton_spleenseg::volume::{BoundingBox, LabelType, LogitType, Shape3, VoxelType};

use crate::cases::{self, Case, Image, Map, Scores, WINDOW};
use crate::patterns::{mask, numbers};

/// How large the volumes are, and how many there are.
pub struct Sizes {
    /// A scan.
    pub volume: Shape3,
    /// What it is resized to.
    pub grid: Shape3,
    /// Small volumes have at most so many voxels along an axis.
    pub axis: u64,
    /// Random cases of a round.
    pub random: usize,
    /// How often each case of a round is done.
    pub times: usize,
}

impl Sizes {
    /// The published ones.
    pub fn real() -> Self {
        Self { volume: shape([512, 512, 114]), grid: shape([224, 224, 224]), axis: 90, random: 100, times: 5 }
    }

    /// For what is slow.
    pub fn small() -> Self {
        Self { volume: shape([12, 13, 41]), grid: shape([8, 8, 48]), axis: 12, random: 20, times: 1 }
    }
}

fn shape(dims: [i64; 3]) -> Shape3 {
    Shape3::new(dims).unwrap()
}

impl Sizes {
    /// An ellipsoid of soft tissue with noise, and air around it.
    pub fn scan(&self, voxel_type: VoxelType) -> Image {
        let ([h, w, d], mut next) = (self.volume.dims().map(|size| size as f32), numbers(1));
        let [_, columns, depth] = self.volume.dims();
        let distance = |at: usize, size: f32| (2.0 * (at as f32 + 0.5) / size - 1.0).powi(2);
        let mut bytes = Vec::with_capacity(self.volume.count() * voxel_type.size());
        for at in 0..self.volume.count() {
            let (i, j, k) = (at / (columns * depth), at / depth % columns, at % depth);
            let is_body = distance(i, h) + distance(j, w) + distance(k, d) < 0.8;
            let value = (next() % 80) as f32 + if is_body { 20.0 } else { -1000.0 };
            match voxel_type {
                VoxelType::Fp32 => bytes.extend(value.to_ne_bytes()),
                VoxelType::Int16 => bytes.extend((value as i16).to_ne_bytes()),
            }
        }
        Image { bytes, voxel_type, shape: self.volume }
    }

    /// About the box around it.
    pub fn crop(&self) -> BoundingBox {
        let dims = self.volume.dims().map(|size| size as i64);
        BoundingBox { start: dims.map(|size| size / 19), end: dims.map(|size| size - size / 19) }
    }

    pub fn plan(&self, mode: ResizeMode) -> CropScaleResize {
        CropScaleResize { scale: WINDOW, crop: self.crop(), size: self.grid, mode }
    }

    pub fn placement(&self, align_corners: bool) -> Placement {
        Placement { crop: self.crop(), input_shape: self.volume, align_corners }
    }

    /// Scores with ties among them.
    pub fn scores(&self, classes: usize, logit_type: LogitType) -> Scores {
        let mut next = numbers(2);
        let values = (0..classes * self.grid.count()).map(|_| (next() % 64) as f32 / 8.0 - 4.0);
        let bytes = match logit_type {
            LogitType::Fp32 => values.flat_map(f32::to_ne_bytes).collect(),
            LogitType::Fp16 => values.flat_map(|value| half::f16::from_f32(value).to_ne_bytes()).collect(),
        };
        Scores { bytes, logit_type, classes, shape: self.grid }
    }

    /// A ball, and specks around it: what a network gives.
    pub fn organ(&self) -> Map {
        let dims = self.grid.dims();
        let squared = move |at: [usize; 3]| {
            let off = |axis: usize| (at[axis] as f32 / dims[axis] as f32 - 0.4).powi(2);
            off(0) + off(1) + off(2)
        };
        let is_set = |at, chance| squared(at) < 0.04 || chance % 1000 == 0;
        Map { data: mask(self.grid, 4, is_set), shape: self.grid }
    }
}

/// A case that is made when it is its turn.
pub struct Later<'s>(Box<dyn FnOnce() -> Case + 's>);

impl<'s> Later<'s> {
    fn new(make: impl FnOnce() -> Case + 's) -> Self {
        Self(Box::new(make))
    }

    pub fn make(self) -> Case {
        (self.0)()
    }
}

impl Case {
    /// How many are read or written.
    pub fn voxels(&self) -> usize {
        match self {
            Self::Foreground { image, .. } | Self::Resize { image, .. } => image.shape.count(),
            Self::Argmax(scores) => scores.shape.count() * scores.classes,
            Self::KeepLargest { map, .. } | Self::Contour(map) | Self::Convert { map, .. } => {
                map.shape.count()
            }
            Self::Native { placement, .. } => placement.input_shape.count(),
        }
    }
}

/// All steps; components of every pattern on the grid with all neighbourhoods, and on the volume with one each.
pub fn cases(sizes: &Sizes) -> impl Iterator<Item = Later<'_>> {
    let voxel_types = [VoxelType::Fp32, VoxelType::Int16];
    let foreground = voxel_types.map(|voxel_type| {
        Later::new(move || Case::Foreground { image: sizes.scan(voxel_type), scale: WINDOW, pieces: 30 })
    });
    let modes = [
        ResizeMode::Area,
        ResizeMode::Nearest,
        ResizeMode::NearestExact,
        ResizeMode::Trilinear { align_corners: false },
        ResizeMode::Trilinear { align_corners: true },
    ];
    let resize = modes.into_iter().flat_map(move |mode| {
        voxel_types.map(|voxel_type| {
            Later::new(move || Case::Resize { image: sizes.scan(voxel_type), plan: sizes.plan(mode) })
        })
    });
    let argmax = [(2, LogitType::Fp32), (2, LogitType::Fp16), (5, LogitType::Fp32)]
        .map(|(classes, logit_type)| Later::new(move || Case::Argmax(sizes.scores(classes, logit_type))));
    let native = [false, true].map(|align_corners| {
        let placement = sizes.placement(align_corners);
        Later::new(move || Case::Native { map: sizes.organ(), placement })
    });
    use LabelType::{Bool, Fp16, Fp32, Int32, Int64, Uint8};
    let convert = [Fp32, Fp16, Uint8, Int32, Int64, Bool]
        .map(|label_type| Later::new(move || Case::Convert { map: sizes.organ(), label_type }));
    let now = |case: Case| Later::new(|| case);
    let of_each_pattern = cases::components_of_every_pattern(sizes.volume)
        .enumerate()
        .filter_map(|(number, case)| (number % 3 == number / 3 % 3).then_some(case));
    foreground
        .into_iter()
        .chain(resize)
        .chain(argmax)
        .chain(native)
        .chain(convert)
        .chain(cases::components_of_every_pattern(sizes.grid).map(now))
        .chain(cases::contours_of_every_pattern(sizes.grid).map(now))
        .chain(of_each_pattern.map(now))
}
