//! Labels on the grid of the input, voxel by voxel.

use triton_backend_api::{HostPool, Result};

use crate::cpu::buffers::Labels;
use crate::native::{Placement, VoxelCount};

pub(in crate::cpu) fn restore(labels: &Labels, placement: &Placement, pool: &HostPool) -> Result<Labels> {
    let grid = labels.shape();
    let [rows, columns, depths] = placement.axes(grid)?;
    let mut native = Labels::take(pool, placement.input_shape, labels.highest())?;
    native.data_mut().fill(0);
    for (i, &row) in rows.labels.iter().enumerate() {
        for (j, &column) in columns.labels.iter().enumerate() {
            for (k, &depth) in depths.labels.iter().enumerate() {
                let place = [rows.first + i, columns.first + j, depths.first + k];
                let at = placement.input_shape.offset(place);
                native.data_mut()[at] = labels.data()[grid.offset([row, column, depth])];
            }
        }
    }
    Ok(native)
}

pub(in crate::cpu) fn count(labels: &Labels, placement: &Placement, pool: &HostPool) -> Result<VoxelCount> {
    let above_0 = |labels: &Labels| labels.data().iter().filter(|&&label| label > 0).count() as u64;
    Ok(VoxelCount { grid: above_0(labels), native: above_0(&restore(labels, placement, pool)?) })
}

#[cfg(test)]
mod tests {
    use crate::cpu::{Labels, both};
    use crate::native::{Placement, VoxelCount};
    use crate::volume::{BoundingBox, Shape3};

    #[test]
    fn a_box_is_filled_and_the_rest_is_background() {
        let labels = Labels::new(&[1, 0, 2, 3], Shape3::new([1, 2, 2]).unwrap()).unwrap();
        let crop = BoundingBox { start: [1, 0, 2], end: [2, 2, 5] };
        let placement =
            Placement { crop, input_shape: Shape3::new([3, 2, 5]).unwrap(), align_corners: false };
        let native = both::restore(&labels, &placement);
        let mut expected = vec![0; 30];
        expected[12..15].copy_from_slice(&[1, 0, 0]);
        expected[17..20].copy_from_slice(&[2, 3, 3]);
        assert_eq!((native.data(), native.highest()), (expected.as_slice(), 3));
        assert_eq!(both::count(&labels, &placement), VoxelCount { grid: 3, native: 4 });
    }
}
