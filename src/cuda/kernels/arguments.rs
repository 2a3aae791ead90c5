//! The kernels' parameters, one structure for all kernels of a step; `arguments.h` has the same for C++.

/// ScaleIntensityRange, as `crate::config::Scale` has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Scaling {
    pub a_min: f32,
    pub a_span: f32,
    pub b_span: f32,
    pub b_min: f32,
    pub lowest: f32,
    pub highest: f32,
    /// Which of them there are: 1 `b_span` and `b_min`, 2 `lowest`, 4 `highest`.
    pub present: u32,
    /// The lowest intensity above 0 after scaling, NaN for none, if `has_threshold`.
    pub threshold: f32,
    /// 0 where scaling is not monotonic: then every voxel is scaled.
    pub has_threshold: u32,
}

/// Bounding box.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForegroundArguments {
    /// The first voxel of the volume.
    pub voxels: u64,
    /// 8 u64: first index along each axis, end along each axis, NaN, infinities.
    pub found: u64,
    /// The voxels to look at, in C order.
    pub first: u64,
    pub end: u64,
    pub dims: [u64; 3],
    pub scaling: Scaling,
}

/// Crop, scale, resize.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ResizeArguments {
    pub voxels: u64,
    /// FP32.
    pub out: u64,
    /// One f64 for each block of `resize_mean`; otherwise not read.
    pub partial: u64,
    pub image: [u64; 3],
    pub crop_start: [i64; 3],
    pub crop_size: [u64; 3],
    pub out_size: [u64; 3],
    pub scaling: Scaling,
    /// `resize_nearest`: 0 copies, 1 rounds down, 2 takes the centre. `resize_trilinear`: 1 aligns corners.
    pub variant: u32,
    /// `resize_area`: the size of a tile of the result along the last two axes ..
    pub tile: [u32; 2],
    /// .. and the most voxels that it covers along them.
    pub covered: [u32; 2],
    pub partials: u32,
}

/// Argmax.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArgmaxArguments {
    pub scores: u64,
    /// U8.
    pub labels: u64,
    /// One u64, which is increased.
    pub nan_count: u64,
    pub voxels: u64,
    pub classes: u32,
}

/// Connected components.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ComponentsArguments {
    /// U8.
    pub labels: u64,
    /// One u32 for each word: 32 voxels of a row.
    pub bits: u64,
    /// One index for each possible run of voxels: its parent.
    pub parents: u64,
    /// The same number of indices: at roots, the voxels of the component.
    pub sizes: u64,
    /// The same number of indices: the roots, in any order.
    pub roots: u64,
    /// The state of the selection.
    pub selection: u64,
    pub dims: [u64; 3],
    /// Words of a row.
    pub words: u64,
    /// Components that stay.
    pub keep: u64,
    /// One bit for each label that is looked at.
    pub selected: [u32; 8],
    /// 1 faces, 2 edges, 3 corners.
    pub connectivity: u32,
    /// `components_select_*`: the place of the digit in size (the upper half) and root, from the highest.
    pub digit: u32,
}

/// Contour.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ContourArguments {
    pub labels: u64,
    pub out: u64,
    /// As in [`ComponentsArguments`]; `contour_labels` does not use it.
    pub bits: u64,
    pub dims: [u64; 3],
    pub words: u64,
}

/// Labels to an output.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ConvertArguments {
    pub labels: u64,
    pub out: u64,
    pub count: u64,
}

/// Labels on the grid of the input.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NativeArguments {
    pub labels: u64,
    /// U8, or 0: then nothing is written.
    pub out: u64,
    /// One u64, which is increased by the labels above 0 on their own grid.
    pub grid_count: u64,
    /// The same on the grid of the input.
    pub native_count: u64,
    pub grid: [u64; 3],
    pub crop_start: [i64; 3],
    pub crop_size: [u64; 3],
    pub image: [u64; 3],
    pub align_corners: u32,
}
