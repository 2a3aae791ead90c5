//! The mean of all voxels that an output voxel covers, in part or in full.
//!
//! The sum of a window is taken in float32 in C order, which is the reference's order: over large windows another order
//! would differ by more than rounding of the result. Only a result of one single voxel is summed otherwise there.

use std::ops::Range;

use triton_backend_api::Result;

use super::Crop;
use crate::cpu::allocate;
use crate::cpu::intensity::{Voxel, scaled};
use crate::volume::Shape3;

/// The voxels of the crop that one output voxel covers along an axis, and which of them the image has.
#[derive(Clone)]
struct Window {
    /// How many voxels are covered, padding included.
    covered: f32,
    /// Those inside the image, in the image's own indices.
    inside: Range<usize>,
}

pub(super) fn mean<V: Voxel>(crop: &Crop<'_, V>, size: Shape3, out: &mut [f32]) -> Result<()> {
    let (rows, columns, depths) = (windows(crop, size, 0)?, windows(crop, size, 1)?, windows(crop, size, 2)?);
    if let [place] = out {
        *place = mean_of_all(crop, [&rows[0], &columns[0], &depths[0]]);
        return Ok(());
    }
    let depth = crop.image.dims()[2];
    let read = depths[0].inside.start..depths[depths.len() - 1].inside.end;
    let mut line = allocate::filled(depth, 0.0, "a row of the crop")?;
    let mut lines = out.chunks_exact_mut(depths.len());
    for row in &rows {
        for (column, sums) in columns.iter().zip(&mut lines) {
            // Padding adds 0: only voxels of the image are summed.
            for i in row.inside.clone() {
                for j in column.inside.clone() {
                    let start = crop.image.offset([i, j, 0]);
                    let voxels = &crop.voxels[start..start + depth];
                    for (value, voxel) in line[read.clone()].iter_mut().zip(&voxels[read.clone()]) {
                        *value = scaled(&crop.scale, voxel.value());
                    }
                    for (sum, window) in sums.iter_mut().zip(&depths) {
                        for value in &line[window.inside.clone()] {
                            *sum += value;
                        }
                    }
                }
            }
            for (sum, window) in sums.iter_mut().zip(&depths) {
                *sum = *sum / row.covered / column.covered / window.covered;
            }
        }
    }
    Ok(())
}

/// The mean of the whole crop, summed in float64: the reference sums pairwise here.
fn mean_of_all<V: Voxel>(crop: &Crop<'_, V>, windows: [&Window; 3]) -> f32 {
    let [rows, columns, depths] = windows.map(|window| window.inside.clone());
    let mut sum = 0.0;
    for i in rows {
        for j in columns.clone() {
            let line = crop.image.offset([i, j, depths.start])..crop.image.offset([i, j, depths.end]);
            sum += crop.voxels[line]
                .iter()
                .map(|voxel| f64::from(scaled(&crop.scale, voxel.value())))
                .sum::<f64>();
        }
    }
    (sum / crop.size.count() as f64) as f32
}

fn windows<V>(crop: &Crop<'_, V>, size: Shape3, axis: usize) -> Result<Vec<Window>> {
    let (from, to) = (crop.size.dims()[axis], size.dims()[axis]);
    let image = crop.image.dims()[axis] as i64;
    let mut windows = allocate::filled(to, Window { covered: 0.0, inside: 0..0 }, "the windows of an axis")?;
    for (at, window) in windows.iter_mut().enumerate() {
        let covered = covered(from, at, to);
        let in_image = |index: usize| (crop.crop.start[axis] + index as i64).clamp(0, image) as usize;
        *window =
            Window { covered: covered.len() as f32, inside: in_image(covered.start)..in_image(covered.end) };
    }
    Ok(windows)
}

/// `floor(at * from / to) .. ceil((at + 1) * from / to)`. The products need more than 64 bits for the largest axes.
pub(in crate::cpu) fn covered(from: usize, at: usize, to: usize) -> Range<usize> {
    let (from, at, to) = (from as u128, at as u128, to as u128);
    (at * from / to) as usize..((at + 1) * from).div_ceil(to) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ResizeMode, Scale};
    use crate::cpu::both;
    use crate::cpu::buffers::Input;
    use crate::pipeline::CropScaleResize;
    use crate::volume::{BoundingBox, VoxelType};

    const AS_IS: Scale = Scale { a_min: 0.0, a_span: 1.0, b: None, lowest: None, highest: None };

    /// The crop `start..end` of the line 0, 1, .. `length` - 1, resized to `to`, along the given axis.
    fn resized(length: i64, start: i64, end: i64, to: i64, axis: usize) -> Vec<f32> {
        let along = |value: i64, other: i64| {
            let mut dims = [other; 3];
            dims[axis] = value;
            dims
        };
        let bytes: Vec<u8> = (0..length as i16).flat_map(i16::to_ne_bytes).collect();
        let input = Input::new(&bytes, VoxelType::Int16, Shape3::new(along(length, 1)).unwrap()).unwrap();
        let plan = CropScaleResize {
            scale: AS_IS,
            crop: BoundingBox { start: along(start, 0), end: along(end, 1) },
            size: Shape3::new(along(to, 1)).unwrap(),
            mode: ResizeMode::Area,
        };
        both::crop_scale_resize(&input, &plan).data().to_vec()
    }

    #[test]
    fn means_of_overlapping_windows_along_every_axis() {
        for axis in 0..3 {
            // Windows 0..2, 1..4, 3..5, and 0..1, 0..2, 1..2, 1..3, 2..3.
            assert_eq!(resized(5, 0, 5, 3, axis), [0.5, 2.0, 3.5]);
            assert_eq!(resized(3, 0, 3, 5, axis), [0.0, 0.5, 1.0, 1.5, 2.0]);
            assert_eq!(resized(5, 0, 5, 5, axis), [0.0, 1.0, 2.0, 3.0, 4.0]);
            assert_eq!(resized(5, 0, 5, 1, axis), [2.0]);
            assert_eq!(resized(6, 2, 4, 1, axis), [2.5]);
        }
    }

    #[test]
    fn padding_counts_as_zero() {
        for axis in 0..3 {
            // The crop is 0 0 | 0 1 2 3 | 0 0.
            assert_eq!(resized(4, -2, 6, 4, axis), [0.0, 0.5, 2.5, 0.0]);
            assert_eq!(resized(4, -2, 6, 8, axis), [0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.0, 0.0]);
            assert_eq!(resized(4, -2, 6, 1, axis), [6.0 / 8.0]);
        }
    }

    #[test]
    fn windows_do_not_overflow() {
        let (from, to) = (1_usize << 40, (1_usize << 40) - 1);
        assert_eq!(covered(from, 0, to), 0..2);
        assert_eq!(covered(from, to - 1, to), from - 2..from);
        assert_eq!(covered(1300 * 1300 * 1300, 223, 224).end, 1300 * 1300 * 1300);
    }
}
