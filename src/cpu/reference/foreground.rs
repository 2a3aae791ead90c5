//! CropForeground's box: from the first to the last voxel above 0 along each axis.

use crate::config::Scale;
use crate::cpu::buffers::{Input, Voxels};
use crate::cpu::intensity::{Voxel, scaled};
use crate::volume::{AXES, BoundingBox, Foreground, Shape3};

pub(in crate::cpu) fn find(input: &Input<'_>, scale: &Scale) -> Foreground {
    match input.voxels() {
        Voxels::Fp32(voxels) => find_in(voxels, input.shape(), scale),
        Voxels::Int16(voxels) => find_in(voxels, input.shape(), scale),
    }
}

fn find_in<V: Voxel>(voxels: &[V], shape: Shape3, scale: &Scale) -> Foreground {
    let [_, columns, depth] = shape.dims();
    let mut found: Option<BoundingBox> = None;
    let (mut nan_count, mut inf_count) = (0, 0);
    for (row_index, row) in voxels.chunks_exact(depth).enumerate() {
        let (i, j) = ((row_index / columns) as i64, (row_index % columns) as i64);
        for (k, voxel) in row.iter().enumerate() {
            let value = voxel.value();
            nan_count += u64::from(value.is_nan());
            inf_count += u64::from(value.is_infinite());
            // NaN is not above 0.
            if scaled(scale, value) > 0.0 {
                include(&mut found, [i, j, k as i64]);
            }
        }
    }
    Foreground { bounding_box: found, nan_count, inf_count }
}

fn include(found: &mut Option<BoundingBox>, at: [i64; 3]) {
    let found = found.get_or_insert(BoundingBox { start: at, end: at });
    for axis in AXES {
        found.start[axis] = found.start[axis].min(at[axis]);
        found.end[axis] = found.end[axis].max(at[axis] + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::both;
    use crate::volume::VoxelType;

    const SIGN: Scale = Scale { a_min: 0.0, a_span: 1.0, b: None, lowest: None, highest: None };

    fn find_in_floats(values: &[f32], dims: [i64; 3]) -> Foreground {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let shape = Shape3::new(dims).unwrap();
        both::find_foreground(&Input::new(&bytes, VoxelType::Fp32, shape).unwrap(), &SIGN)
    }

    #[test]
    fn each_single_voxel_is_its_own_box() {
        let dims = [2, 3, 4];
        let shape = Shape3::new(dims).unwrap();
        for i in 0..2 {
            for j in 0..3 {
                for k in 0..4 {
                    let mut values = vec![-1.0; 24];
                    values[shape.offset([i, j, k])] = 1.0;
                    let start = [i as i64, j as i64, k as i64];
                    let expected = BoundingBox { start, end: start.map(|at| at + 1) };
                    assert_eq!(find_in_floats(&values, dims).bounding_box, Some(expected));
                }
            }
        }
    }

    #[test]
    fn opposite_corners_span_the_volume() {
        let mut values = vec![0.0; 60];
        values[0] = 1.0;
        values[59] = 1.0;
        let expected = BoundingBox { start: [0; 3], end: [3, 4, 5] };
        assert_eq!(find_in_floats(&values, [3, 4, 5]).bounding_box, Some(expected));
    }

    #[test]
    fn zero_and_nan_are_no_foreground_and_infinity_is() {
        let found = find_in_floats(&[0.0, f32::NAN, -0.0, f32::NEG_INFINITY], [1, 1, 4]);
        assert_eq!(found, Foreground { bounding_box: None, nan_count: 1, inf_count: 1 });
        let found = find_in_floats(&[0.0, f32::NAN, f32::INFINITY, f32::NAN], [1, 1, 4]);
        let expected = BoundingBox { start: [0, 0, 2], end: [1, 1, 3] };
        assert_eq!(found, Foreground { bounding_box: Some(expected), nan_count: 2, inf_count: 1 });
    }
}
