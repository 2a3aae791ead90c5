//! Crop, scale and resize: the voxels of a padded box, resampled.
//!
//! The crop is never made: every mode reads the input where it lies, scales what it reads, and takes 0 outside the image.

pub(in crate::cpu) mod area;
mod linear;
mod nearest;

use triton_backend_api::{HostPool, Result};

use crate::config::{ResizeMode, Scale};
use crate::cpu::buffers::{Input, Tensor, Voxels};
use crate::cpu::intensity::{Voxel, scaled};
use crate::pipeline::CropScaleResize;
use crate::sampling;
use crate::volume::{AXES, BoundingBox, Shape3};

pub(in crate::cpu) fn crop_scale_resize(
    input: &Input<'_>,
    plan: &CropScaleResize,
    pool: &HostPool,
) -> Result<Tensor> {
    match input.voxels() {
        Voxels::Fp32(voxels) => resize(&Crop::new(voxels, input.shape(), plan)?, plan, pool),
        Voxels::Int16(voxels) => resize(&Crop::new(voxels, input.shape(), plan)?, plan, pool),
    }
}

fn resize<V: Voxel>(crop: &Crop<'_, V>, plan: &CropScaleResize, pool: &HostPool) -> Result<Tensor> {
    let mut tensor = Tensor::take(pool, plan.size)?;
    let out = tensor.data_mut();
    out.fill(0.0);
    if crop.size == plan.size {
        nearest::sample(crop, plan.size, out, |_, at, _| at)?;
    } else {
        match plan.mode {
            ResizeMode::Area => area::mean(crop, plan.size, out)?,
            ResizeMode::Trilinear { align_corners } => {
                linear::interpolate(crop, plan.size, align_corners, out)?
            }
            ResizeMode::Nearest => nearest::sample(crop, plan.size, out, sampling::floored)?,
            ResizeMode::NearestExact => nearest::sample(crop, plan.size, out, sampling::centred)?,
        }
    }
    Ok(tensor)
}

/// A box of an image, with scaled intensities inside the image and 0 outside.
struct Crop<'a, V> {
    voxels: &'a [V],
    image: Shape3,
    crop: BoundingBox,
    size: Shape3,
    scale: Scale,
}

impl<'a, V: Voxel> Crop<'a, V> {
    fn new(voxels: &'a [V], image: Shape3, plan: &CropScaleResize) -> Result<Self> {
        Ok(Self { voxels, image, crop: plan.crop, size: plan.crop.size()?, scale: plan.scale })
    }

    /// The scaled intensity at a place of the crop.
    fn value(&self, at: [usize; 3]) -> f32 {
        let mut inside = [0; 3];
        for axis in AXES {
            match usize::try_from(self.crop.start[axis] + at[axis] as i64) {
                Ok(index) if index < self.image.dims()[axis] => inside[axis] = index,
                _ => return 0.0,
            }
        }
        scaled(&self.scale, self.voxels[self.image.offset(inside)].value())
    }
}
