//! Crop, scale, resize.

use triton_backend_api::Result;

use super::{Geometry, InputSpan, blocks, check_axes, dims, launch, scaling};
use crate::config::ResizeMode;
use crate::cuda::kernels::Kernel;
use crate::cuda::kernels::arguments::ResizeArguments;
use crate::cuda::queue::{DeviceSpan, Queue};
use crate::pipeline::CropScaleResize;
use crate::volume::VoxelType;

/// Blocks of the mean of a whole crop, and so the sums that are added up at its end.
const PARTIALS: usize = 256;

/// Bytes of shared memory that a tile may take: several blocks fit a multiprocessor.
const TILE_BYTES: usize = 24 << 10;

/// Bytes of working memory, for any plan.
pub fn resize_scratch() -> usize {
    PARTIALS * size_of::<f64>()
}

/// Writes the resized volume, FP32 in C order, to `out`. `scratch` begins at a multiple of 8.
pub fn crop_scale_resize(
    queue: &impl Queue,
    input: &InputSpan<'_>,
    plan: &CropScaleResize,
    out: DeviceSpan<'_>,
    scratch: DeviceSpan<'_>,
) -> Result<()> {
    let (from, to) = (plan.crop.size()?, plan.size);
    input.check()?;
    check_axes(from, to)?;
    out.check("the resized volume", to.count() * size_of::<f32>(), 4)?;
    scratch.check("the working memory of resizing", resize_scratch(), 8)?;
    let mut arguments = ResizeArguments {
        voxels: input.voxels.address(),
        out: out.address(),
        partial: scratch.address(),
        image: dims(input.shape),
        crop_start: plan.crop.start,
        crop_size: dims(from),
        out_size: dims(to),
        scaling: scaling(&plan.scale),
        variant: 0,
        tile: [0; 2],
        covered: [0; 2],
        partials: PARTIALS as u32,
    };
    let of_type = |fp32, int16| match input.voxel_type {
        VoxelType::Fp32 => fp32,
        VoxelType::Int16 => int16,
    };
    let each_voxel = blocks(queue, to.count(), queue.block() as usize);
    let nearest = of_type(Kernel::ResizeNearestFp32, Kernel::ResizeNearestInt16);
    let (kernel, geometry) = match plan.mode {
        _ if from == to => (nearest, each_voxel),
        ResizeMode::Nearest => {
            arguments.variant = 1;
            (nearest, each_voxel)
        }
        ResizeMode::NearestExact => {
            arguments.variant = 2;
            (nearest, each_voxel)
        }
        ResizeMode::Trilinear { align_corners } => {
            arguments.variant = u32::from(align_corners);
            (of_type(Kernel::ResizeTrilinearFp32, Kernel::ResizeTrilinearInt16), each_voxel)
        }
        ResizeMode::Area if to.count() == 1 => {
            let geometry = Geometry { grid: PARTIALS as u32, block: queue.block(), shared_bytes: 0 };
            let kernel = of_type(Kernel::ResizeMeanFp32, Kernel::ResizeMeanInt16);
            // SAFETY: input, output and scratch are as long as the kernel takes them to be, which has been checked.
            unsafe { launch(queue, kernel, &geometry, &arguments)? };
            (Kernel::ResizeMeanOfParts, Geometry { grid: 1, block: 32, shared_bytes: 0 })
        }
        ResizeMode::Area => match tile(queue, plan)? {
            Some(tile) => {
                (arguments.tile, arguments.covered) = (tile.size, tile.covered);
                (of_type(Kernel::ResizeAreaFp32, Kernel::ResizeAreaInt16), tile.geometry)
            }
            None => (of_type(Kernel::ResizeLargeFp32, Kernel::ResizeLargeInt16), each_voxel),
        },
    };
    // SAFETY: input, output and scratch are as long as the kernel takes them to be, which has been checked.
    unsafe { launch(queue, kernel, &geometry, &arguments) }
}

/// How `resize_area` cuts each plane of the result.
struct Tile {
    size: [u32; 2],
    covered: [u32; 2],
    geometry: Geometry,
}

/// The largest tile whose sums fit the shared memory; none where windows are so large that the order of their sums shows,
/// by the same rule as on the CPU.
fn tile(queue: &impl Queue, plan: &CropScaleResize) -> Result<Option<Tile>> {
    if !crate::cpu::area_is_separable(plan)? {
        return Ok(None);
    }
    let (from, to) = (plan.crop.size()?.dims(), plan.size.dims());
    // `tile` windows in a row begin and end within this many voxels.
    let covered = |axis: usize, tile: usize| (tile * from[axis]).div_ceil(to[axis]) + 1;
    let (mut columns, mut depth) = (to[1].min(8), to[2].min(256));
    let bytes = |columns: usize, depth: usize| {
        (covered(1, columns) + columns) * covered(2, depth) * size_of::<f32>()
            + 3 * (columns + depth) * size_of::<u32>()
    };
    while bytes(columns, depth) > TILE_BYTES && (columns > 1 || depth > 1) {
        if depth > 32 || columns == 1 { depth = depth.div_ceil(2) } else { columns = columns.div_ceil(2) }
    }
    let tiles = to[0] * to[1].div_ceil(columns) * to[2].div_ceil(depth);
    let geometry = Geometry { shared_bytes: bytes(columns, depth) as u32, ..blocks(queue, tiles, 1) };
    let size = [columns as u32, depth as u32];
    Ok(Some(Tile { size, covered: [covered(1, columns) as u32, covered(2, depth) as u32], geometry }))
}
