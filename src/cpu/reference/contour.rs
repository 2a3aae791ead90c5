//! LabelToContour: a Laplace kernel over the label values, limited to 0 and 1.

use triton_backend_api::{HostPool, Result};

use crate::cpu::buffers::Labels;
use crate::volume::AXES;

pub(in crate::cpu) fn contour(labels: &Labels, pool: &HostPool) -> Result<Labels> {
    let shape = labels.shape();
    let [rows, columns, depth] = shape.dims();
    let mut contour = Labels::take(pool, shape, 1)?;
    let mut at = 0;
    for i in 0..rows {
        for j in 0..columns {
            for k in 0..depth {
                let label = u32::from(labels.data()[at]);
                // 0 minus its neighbours is never above 0.
                contour.data_mut()[at] = u8::from(label > 0 && 27 * label > sum_of_block(labels, [i, j, k]));
                at += 1;
            }
        }
    }
    Ok(contour)
}

/// The sum of the 27 labels around and at a voxel; outside the volume lies 0.
fn sum_of_block(labels: &Labels, at: [usize; 3]) -> u32 {
    let dims = labels.shape().dims();
    let [i, j, k] = AXES.map(|axis| at[axis].saturating_sub(1)..(at[axis] + 2).min(dims[axis]));
    let mut sum = 0;
    for row in i {
        for column in j.clone() {
            let first = labels.shape().offset([row, column, k.start]);
            sum += labels.data()[first..first + k.len()].iter().map(|&label| u32::from(label)).sum::<u32>();
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::both;
    use crate::volume::Shape3;

    fn contour_of(data: Vec<u8>, dims: [i64; 3]) -> Vec<u8> {
        both::contour(&Labels::new(&data, Shape3::new(dims).unwrap()).unwrap()).data().to_vec()
    }

    #[test]
    fn only_a_voxel_whose_26_neighbours_are_set_is_inside() {
        let mut expected = vec![1; 27];
        expected[13] = 0;
        assert_eq!(contour_of(vec![1; 27], [3, 3, 3]), expected);
        let mut without_a_corner = vec![1; 27];
        without_a_corner[0] = 0;
        let mut expected = without_a_corner.clone();
        expected[0] = 0;
        assert_eq!(contour_of(without_a_corner, [3, 3, 3]), expected);
    }

    #[test]
    fn larger_labels_weigh_more() {
        // 26 x 2 - (24 x 2 + 2 x 1) = 2 and 26 x 1 - (24 x 2 + 2 x 1) < 0, in the middle of a 3-cube.
        for (centre, expected) in [(2, 1), (1, 0)] {
            let mut data = vec![2; 27];
            data[0] = 1;
            data[26] = 1;
            data[13] = centre;
            assert_eq!(contour_of(data, [3, 3, 3])[13], expected);
        }
    }

    #[test]
    fn an_axis_of_one_has_no_inside() {
        assert_eq!(contour_of(vec![1; 9], [3, 1, 3]), vec![1; 9]);
    }
}
