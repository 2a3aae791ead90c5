//! Crop, scale and resize. Area resizing, the default, has a form of its own; the other modes and sizes are the
//! reference's.

pub(super) mod area;

use triton_backend_api::{HostPool, Result};

use super::buffers::{Input, Tensor, Voxels};
use super::reference;
use crate::config::ResizeMode;
use crate::pipeline::CropScaleResize;

pub(super) fn crop_scale_resize(
    input: &Input<'_>,
    plan: &CropScaleResize,
    pool: &HostPool,
) -> Result<Tensor> {
    let is_separable = plan.mode == ResizeMode::Area && area::is_separable(plan)?;
    let (true, Some(intensity)) = (is_separable, area::Intensity::new(&plan.scale)) else {
        return reference::resize::crop_scale_resize(input, plan, pool);
    };
    let mut tensor = Tensor::take(pool, plan.size)?;
    let out = tensor.data_mut();
    tensor.is_of_finite = match input.voxels() {
        Voxels::Fp32(voxels) => area::mean(voxels, input.shape(), plan, intensity, out)?,
        Voxels::Int16(voxels) => area::mean(voxels, input.shape(), plan, intensity, out)?,
    };
    Ok(tensor)
}
