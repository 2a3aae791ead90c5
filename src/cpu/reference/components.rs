//! KeepLargestConnectedComponent of a label map.

use std::cmp::Reverse;

use triton_backend_api::Result;

use crate::config::{Connectivity, KeepLargest};
use crate::cpu::allocate;
use crate::cpu::buffers::Labels;
use crate::volume::Shape3;

pub(in crate::cpu) fn keep_largest(mut labels: Labels, keep: &KeepLargest) -> Result<Labels> {
    let selected = selected(&labels, keep);
    if keep.independent {
        for &label in &selected {
            keep_largest_of(&mut labels, &[label], keep)?;
        }
    } else {
        keep_largest_of(&mut labels, &selected, keep)?;
    }
    Ok(labels)
}

/// The labels whose components are looked at.
pub(in crate::cpu) fn selected(labels: &Labels, keep: &KeepLargest) -> Vec<u8> {
    match &keep.applied_labels {
        Some(applied) => applied.iter().filter_map(|&label| u8::try_from(label).ok()).collect(),
        None => labels_above_0(labels),
    }
}

fn labels_above_0(labels: &Labels) -> Vec<u8> {
    let mut present = [false; 256];
    for &label in labels.data() {
        present[usize::from(label)] = true;
    }
    (1..=u8::MAX).filter(|&label| present[usize::from(label)]).collect()
}

/// Keeps the largest components of the union of the selected labels and sets their other voxels to 0.
pub(in crate::cpu) fn keep_largest_of(
    labels: &mut Labels,
    selected: &[u8],
    keep: &KeepLargest,
) -> Result<()> {
    let mut field = Field::new(labels, selected, keep.connectivity)?;
    let mut components = field.components()?;
    if components.len() <= keep.num_components {
        return Ok(());
    }
    // Of equal sizes the one that begins last in C order is kept.
    let rank = |component: &Component| Reverse((component.size, component.first));
    components.select_nth_unstable_by_key(keep.num_components, rank);
    for component in &components[..keep.num_components] {
        field.fill(component.first, State::Counted, State::Kept)?;
    }
    field.clear_where_counted(labels);
    Ok(())
}

/// What is known of a voxel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not of the selected labels.
    Background,
    /// Not yet reached.
    Foreground,
    /// Part of a component that has been counted.
    Counted,
    /// Part of a component that stays.
    Kept,
}

/// A component, found by its first voxel in C order.
struct Component {
    size: usize,
    first: usize,
}

/// The state of each voxel, with one voxel of background around the volume, so that no neighbour lies outside and
/// none is found round the end of a row or slice.
struct Field {
    states: Vec<State>,
    padded: Shape3,
    /// What leads from a voxel's place to those of its neighbours.
    steps: Vec<isize>,
    /// Voxels whose neighbours are still to be looked at.
    pending: Vec<usize>,
}

impl Field {
    fn new(labels: &Labels, selected: &[u8], connectivity: Connectivity) -> Result<Self> {
        let padded = Shape3::new(labels.shape().dims().map(|size| size as i64 + 2))?;
        let mut field = Self {
            states: allocate::filled(padded.count(), State::Background, "the search for components")?,
            padded,
            steps: steps(padded, connectivity),
            pending: Vec::new(),
        };
        let mut is_selected = [false; 256];
        for &label in selected {
            is_selected[usize::from(label)] = true;
        }
        let depth = labels.shape().dims()[2];
        for (row, start) in labels.data().chunks_exact(depth).zip(row_starts(padded)) {
            for (state, &label) in field.states[start..].iter_mut().zip(row) {
                if is_selected[usize::from(label)] {
                    *state = State::Foreground;
                }
            }
        }
        Ok(field)
    }

    /// All components, in the C order of their first voxels.
    fn components(&mut self) -> Result<Vec<Component>> {
        let mut components = Vec::new();
        for first in 0..self.states.len() {
            if self.states[first] == State::Foreground {
                let size = self.fill(first, State::Foreground, State::Counted)?;
                allocate::reserve(&mut components, 1, "the list of components")?;
                components.push(Component { size, first });
            }
        }
        Ok(components)
    }

    /// Turns the component around `first` from one state into another, and returns its size.
    fn fill(&mut self, first: usize, from: State, to: State) -> Result<usize> {
        let mut size = 0;
        self.states[first] = to;
        self.pending.push(first);
        while let Some(at) = self.pending.pop() {
            size += 1;
            allocate::reserve(&mut self.pending, self.steps.len(), "the search for components")?;
            for &step in &self.steps {
                let neighbour = at.wrapping_add_signed(step);
                if self.states[neighbour] == from {
                    self.states[neighbour] = to;
                    self.pending.push(neighbour);
                }
            }
        }
        Ok(size)
    }

    fn clear_where_counted(&self, labels: &mut Labels) {
        let depth = labels.shape().dims()[2];
        for (row, start) in labels.data_mut().chunks_exact_mut(depth).zip(row_starts(self.padded)) {
            for (label, &state) in row.iter_mut().zip(&self.states[start..]) {
                if state == State::Counted {
                    *label = 0;
                }
            }
        }
    }
}

/// Where the rows of the volume begin in the padded field, in C order.
fn row_starts(padded: Shape3) -> impl Iterator<Item = usize> {
    let [rows, columns, _] = padded.dims();
    (1..rows - 1).flat_map(move |i| (1..columns - 1).map(move |j| padded.offset([i, j, 1])))
}

/// The steps to all neighbours: at most `connectivity` axes differ, by one voxel each.
fn steps(padded: Shape3, connectivity: Connectivity) -> Vec<isize> {
    let [_, columns, depth] = padded.dims().map(|size| size as isize);
    let mut steps = Vec::new();
    for i in -1..=1_isize {
        for j in -1..=1_isize {
            for k in -1..=1_isize {
                let differing = i.abs() + j.abs() + k.abs();
                if (1..=connectivity as isize).contains(&differing) {
                    steps.push((i * columns + j) * depth + k);
                }
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::both;

    const LARGEST: KeepLargest = KeepLargest {
        applied_labels: None,
        independent: true,
        connectivity: Connectivity::Corners,
        num_components: 1,
    };

    /// A label map with boxes of one label each: start, size, label.
    fn volume(dims: [i64; 3], boxes: &[([usize; 3], [usize; 3], u8)]) -> Labels {
        let shape = Shape3::new(dims).unwrap();
        let mut data = vec![0; shape.count()];
        for &(start, size, label) in boxes {
            for i in start[0]..start[0] + size[0] {
                for j in start[1]..start[1] + size[1] {
                    for k in start[2]..start[2] + size[2] {
                        data[shape.offset([i, j, k])] = label;
                    }
                }
            }
        }
        Labels::new(&data, shape).unwrap()
    }

    fn counts(labels: &Labels) -> [usize; 4] {
        [0, 1, 2, 3].map(|label| labels.data().iter().filter(|&&found| found == label).count())
    }

    #[test]
    fn two_cubes_that_share_a_corner_outweigh_a_block_only_with_full_connectivity() {
        let boxes = [([0, 0, 0], [2, 2, 2], 1), ([2, 2, 2], [2, 2, 2], 1), ([6, 0, 0], [3, 2, 2], 1)];
        let dims = [10, 6, 6];
        let corners = both::keep_largest(&volume(dims, &boxes), &LARGEST);
        assert_eq!(corners, volume(dims, &boxes[..2]));
        for connectivity in [Connectivity::Edges, Connectivity::Faces] {
            let kept = both::keep_largest(&volume(dims, &boxes), &KeepLargest { connectivity, ..LARGEST });
            assert_eq!(kept, volume(dims, &boxes[2..]));
        }
    }

    #[test]
    fn cubes_that_share_an_edge_join_with_18_neighbours_and_a_face_with_6() {
        let edge = [([0, 0, 0], [2, 2, 2], 1), ([2, 2, 0], [2, 2, 2], 1)];
        let face = [([0, 0, 0], [2, 2, 2], 1), ([2, 0, 0], [2, 2, 2], 1)];
        for (boxes, connectivity, expected) in
            [(edge, Connectivity::Faces, 8), (edge, Connectivity::Edges, 16), (face, Connectivity::Faces, 16)]
        {
            let kept =
                both::keep_largest(&volume([5, 5, 5], &boxes), &KeepLargest { connectivity, ..LARGEST });
            assert_eq!(counts(&kept)[1], expected);
        }
    }

    #[test]
    fn nothing_joins_round_the_end_of_a_row_or_slice() {
        // The last voxel of a row or slice and the first of the next are neighbours in memory only.
        for (last, next) in [([1, 1, 4], [1, 2, 0]), ([0, 4, 4], [1, 0, 0]), ([0, 4, 2], [1, 0, 2])] {
            let boxes = [(last, [1, 1, 1], 1), (next, [1, 1, 1], 1)];
            let kept = both::keep_largest(&volume([3, 5, 5], &boxes), &LARGEST);
            assert_eq!(kept, volume([3, 5, 5], &boxes[1..]));
        }
    }

    #[test]
    fn of_equal_components_the_last_in_c_order_stays() {
        let boxes = [([0, 0, 0], [1, 1, 2], 1), ([2, 2, 0], [1, 1, 2], 1), ([4, 0, 3], [1, 1, 2], 1)];
        let kept = both::keep_largest(&volume([5, 5, 5], &boxes), &LARGEST);
        assert_eq!(kept, volume([5, 5, 5], &boxes[2..]));
        let two = KeepLargest { num_components: 2, ..LARGEST };
        assert_eq!(both::keep_largest(&volume([5, 5, 5], &boxes), &two), volume([5, 5, 5], &boxes[1..]));
    }

    #[test]
    fn num_components_0_removes_all_and_more_than_there_are_removes_none() {
        let boxes = [([0, 0, 0], [1, 1, 2], 1), ([2, 2, 0], [1, 1, 3], 1)];
        for (num_components, expected) in [(0, 0), (1, 3), (2, 5), (3, 5), (usize::MAX, 5)] {
            let kept =
                both::keep_largest(&volume([3, 3, 3], &boxes), &KeepLargest { num_components, ..LARGEST });
            assert_eq!(counts(&kept)[1], expected, "{num_components}");
        }
    }

    #[test]
    fn labels_not_listed_stay_and_a_union_is_one_component() {
        // Label 1: 3 voxels and 2 apart; label 2: one touching the smaller part; label 3: two single voxels.
        let boxes = [
            ([0, 0, 0], [1, 1, 3], 1),
            ([4, 0, 0], [1, 1, 2], 1),
            ([4, 1, 0], [1, 1, 2], 2),
            ([0, 4, 0], [1, 1, 1], 3),
            ([4, 4, 4], [1, 1, 1], 3),
        ];
        let kept = |applied: &[i64], independent| {
            let keep = KeepLargest { applied_labels: Some(applied.to_vec()), independent, ..LARGEST };
            counts(&both::keep_largest(&volume([5, 5, 5], &boxes), &keep))
        };
        assert_eq!(kept(&[1], true), [118, 3, 2, 2]);
        assert_eq!(kept(&[1, 2, 3], true), [119, 3, 2, 1]);
        assert_eq!(kept(&[1, 2], false), [119, 2, 2, 2]);
        assert_eq!(kept(&[], true), kept(&[7, 300], false));
        assert_eq!(kept(&[], true), [116, 5, 2, 2]);
        let every = KeepLargest { applied_labels: None, ..LARGEST };
        assert_eq!(counts(&both::keep_largest(&volume([5, 5, 5], &boxes), &every)), kept(&[1, 2, 3], true));
    }

    #[test]
    fn a_component_as_large_as_the_volume_and_an_empty_map_pass_through() {
        for label in [0, 1] {
            let labels = volume([1, 7, 300], &[([0, 0, 0], [1, 7, 300], label)]);
            assert_eq!(both::keep_largest(&labels, &LARGEST), labels);
        }
    }
}
