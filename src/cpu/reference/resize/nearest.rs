//! One voxel of the crop for each voxel of the result. [`crate::sampling`] says which.

use triton_backend_api::Result;

use super::Crop;
use crate::cpu::allocate;
use crate::cpu::intensity::Voxel;
use crate::volume::Shape3;

/// Takes for each output index `at` the voxel `source(input size, at, output size)` along each axis.
pub(super) fn sample<V: Voxel>(
    crop: &Crop<'_, V>,
    size: Shape3,
    out: &mut [f32],
    source: impl Fn(usize, usize, usize) -> usize,
) -> Result<()> {
    let table = |axis: usize| {
        let (from, to) = (crop.size.dims()[axis], size.dims()[axis]);
        let mut indices = allocate::filled(to, 0, "the indices of an axis")?;
        for (at, index) in indices.iter_mut().enumerate() {
            *index = source(from, at, to);
        }
        Ok(indices)
    };
    let (rows, columns, depths) = (table(0)?, table(1)?, table(2)?);
    let mut places = out.iter_mut();
    for &i in &rows {
        for &j in &columns {
            for (&k, place) in depths.iter().zip(&mut places) {
                *place = crop.value([i, j, k]);
            }
        }
    }
    Ok(())
}
