//! The way back: from the network's grid to the grid of the input.
//!
//! MONAI's geometry of a resize without `align_corners` is that of its affines: the outer faces of box and grid coincide,
//! and each voxel of the box takes the label under its centre, which is what MONAI's Resize does with mode
//! `nearest-exact`. (MONAI's mode `nearest`, which its Invertd chooses, takes the label under the voxel's lower corner:
//! that moves a mask by half a voxel of the scan, always towards the end of each axis.) With `align_corners` the centres
//! of the corner voxels coincide instead. What lies outside the box is 0, and what lies outside the input is dropped.

use triton_backend_api::{Error, Result};

use crate::sampling::{aligned, centred};
use crate::volume::{AXES, BoundingBox, Shape3};

/// Where the labels of the network's grid lie in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The box that was resized to the grid; it overlaps the input and may reach outside it.
    pub crop: BoundingBox,
    /// The size of the input.
    pub input_shape: Shape3,
    /// Whether the resize kept the centres of the corner voxels in their places.
    pub align_corners: bool,
}

/// How many labels are above 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VoxelCount {
    /// On the network's grid.
    pub grid: u64,
    /// On the input's grid, once they are put back there.
    pub native: u64,
}

/// One axis of the way back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The first voxel of the input that lies in the box.
    pub first: usize,
    /// For it and those after it that lie in the box, which label each takes.
    pub labels: Vec<usize>,
}

impl Placement {
    /// The three axes, for labels on this grid.
    pub fn axes(&self, grid: Shape3) -> Result<[Axis; 3]> {
        let [i, j, k] = AXES.map(|axis| self.axis(axis, grid.dims()[axis]));
        Ok([i?, j?, k?])
    }

    fn axis(&self, axis: usize, grid: usize) -> Result<Axis> {
        let (start, end) = (self.crop.start[axis], self.crop.end[axis]);
        let size = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
        // A box of MONAI's always overlaps the input; one that does not takes no label.
        let first = start.max(0);
        let last = end.min(self.input_shape.dims()[axis] as i64);
        let count = usize::try_from(last - first).unwrap_or(0);
        let mut labels = room(count)?;
        let source = if self.align_corners { aligned } else { centred };
        labels.extend((0..count).map(|at| source(grid, at + (first - start) as usize, size)));
        Ok(Axis { first: first as usize, labels })
    }
}

impl Axis {
    /// For each label along the axis, how many voxels of the input take it.
    pub fn weights(&self, grid: usize) -> Result<Vec<u64>> {
        let mut weights = room(grid)?;
        weights.resize(grid, 0);
        for &label in &self.labels {
            weights[label] += 1;
        }
        Ok(weights)
    }
}

fn room<T>(count: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| {
        Error::unavailable(format!("out of host memory: a table for an axis of {count} voxels"))
    })?;
    Ok(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(start: i64, end: i64, input: i64, grid: usize, align_corners: bool) -> Axis {
        let crop = BoundingBox { start: [start, 0, 0], end: [end, 1, 1] };
        let input_shape = Shape3::new([input, 1, 1]).unwrap();
        Placement { crop, input_shape, align_corners }.axis(0, grid).unwrap()
    }

    #[test]
    fn each_voxel_of_the_box_takes_the_label_under_its_centre() {
        // Centres at 1/2, 3/2 and 5/2 of 3 voxels, which are 5/6, 5/2 and 25/6 of 5 labels.
        assert_eq!(axis(4, 7, 9, 5, false), Axis { first: 4, labels: vec![0, 2, 4] });
        assert_eq!(axis(0, 4, 4, 2, false), Axis { first: 0, labels: vec![0, 0, 1, 1] });
        assert_eq!(axis(4, 7, 9, 5, true).labels, [0, 2, 4]);
        assert_eq!(axis(0, 4, 4, 2, true).labels, [0, 0, 1, 1]);
    }

    #[test]
    fn what_lies_outside_the_input_takes_part_in_the_size_and_is_dropped() {
        assert_eq!(axis(-2, 6, 5, 4, false), Axis { first: 0, labels: vec![1, 1, 2, 2, 3] });
        assert_eq!(axis(3, 8, 5, 5, false), Axis { first: 3, labels: vec![0, 1] });
    }

    #[test]
    fn weights_count_the_voxels_that_take_a_label() {
        assert_eq!(axis(-2, 6, 5, 4, false).weights(4).unwrap(), [0, 2, 2, 1]);
        assert_eq!(axis(0, 3, 3, 5, false).weights(5).unwrap(), [1, 0, 1, 0, 1]);
    }
}
