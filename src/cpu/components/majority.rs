//! One component that has more than half of the selected voxels, filled from the inside, 64 voxels at a time.
//!
//! Such a component is the largest, whatever the others are. Each slab of planes is filled from a voxel of its own in
//! parallel; fills that touch are of one component, and go on across the borders of the slabs until nothing changes.

use rayon::prelude::*;
use triton_backend_api::Result;

use crate::cpu::buffers::Labels;
use crate::cpu::simd::{self, Kernel};
use crate::cpu::{allocate, bits};

/// Times that a slab is swept before its component is left to the search that takes all alike.
const MOST_SWEEPS: usize = 8;
/// Times that fills cross the borders of the slabs.
const MOST_ROUNDS: usize = 8;

/// Keeps the component that has more than half of the voxels that `table` selects, 26 neighbours each, and sets the others
/// to 0. Without a table the labels are 0 or 1 and 1 is selected. Where it finds none it changes nothing and is false;
/// where nothing is selected there is nothing to do.
pub(super) fn keep(
    labels: &mut Labels,
    table: Option<&[u8; 256]>,
    slab_size: usize,
    slabs: &mut Vec<Slab>,
) -> Result<bool> {
    let [_, columns, depth] = labels.shape().dims();
    slabs.resize_with(labels.data().len().div_ceil(slab_size), Slab::default);
    let pieces = labels.data().par_chunks(slab_size).zip(&mut *slabs);
    let begin = |(labels, slab)| simd::run(Begin { slab, labels, columns, depth, table });
    if !pieces.map(begin).try_reduce(|| true, |a, b| Ok(a && b))? {
        return Ok(false);
    }
    join(slabs);
    let mut rounds = 0..MOST_ROUNDS;
    while exchange(slabs) {
        if rounds.next().is_none() || !slabs.par_iter_mut().all(|slab| simd::run(Fill(slab))) {
            return Ok(false);
        }
    }
    let (selected, filled) = slabs
        .par_iter()
        .map(|slab| (simd::run(Count(&slab.selected)), simd::run(Count(slab.inner()))))
        .reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    if selected > 0 && filled <= selected - filled {
        return Ok(false);
    }
    if filled < selected {
        let pieces = labels.data_mut().par_chunks_mut(slab_size).zip(&*slabs);
        pieces.for_each(|(labels, slab)| simd::run(Clear { slab, labels, depth }));
    }
    Ok(true)
}

/// Some planes of a volume as rows of bits.
#[derive(Default)]
pub(super) struct Slab {
    selected: Vec<u64>,
    /// The fill. It has a plane more at either end, a copy of the neighbouring slab's, and in each plane a row of nothing
    /// before the first and after the last.
    filled: Vec<u64>,
    /// Whether something changed beside or in a plane since it was last looked at.
    is_due: Vec<bool>,
    /// Words of a row.
    width: usize,
    /// Rows of a plane.
    columns: usize,
}

impl Slab {
    fn plane_size(&self) -> usize {
        (self.columns + 2) * self.width
    }

    /// A plane of the fill, from 0, the one before the slab's own.
    fn plane(&self, i: usize) -> &[u64] {
        &self.filled[i * self.plane_size()..(i + 1) * self.plane_size()]
    }

    fn last(&self) -> usize {
        self.is_due.len() - 2
    }

    /// The slab's own planes of the fill.
    fn inner(&self) -> &[u64] {
        &self.filled[self.plane_size()..(self.last() + 1) * self.plane_size()]
    }

    /// Takes over a plane of a neighbour. Says whether it is news.
    fn take_over(&mut self, i: usize, beside: usize, plane: &[u64]) -> bool {
        let at = i * self.plane_size();
        let mine = &mut self.filled[at..at + plane.len()];
        let is_new = mine != plane;
        if is_new {
            mine.copy_from_slice(plane);
            self.is_due[beside] = true;
        }
        is_new
    }

    /// Grows the fill until nothing changes; false where that takes too long.
    #[inline(always)]
    fn fill(&mut self) -> bool {
        for _ in 0..MOST_SWEEPS {
            for i in 1..=self.last() {
                self.fill_plane(i);
            }
            for i in (1..=self.last()).rev() {
                self.fill_plane(i);
            }
            if !self.is_due[1..=self.last()].contains(&true) {
                return true;
            }
        }
        false
    }

    #[inline(always)]
    fn fill_plane(&mut self, i: usize) {
        if !std::mem::take(&mut self.is_due[i]) {
            return;
        }
        let mut changed = false;
        for j in 1..=self.columns {
            changed |= self.fill_row(i, j);
        }
        for j in (1..=self.columns).rev() {
            changed |= self.fill_row(i, j);
        }
        if changed {
            self.is_due[i - 1..=i + 1].fill(true);
        }
    }

    #[inline(always)]
    fn fill_row(&mut self, i: usize, j: usize) -> bool {
        let (width, plane) = (self.width, self.plane_size());
        let selected = &self.selected[((i - 1) * self.columns + j - 1) * width..][..width];
        let at = i * plane + j * width;
        // Most rows are full after the first sweep.
        if self.filled[at..at + width] == *selected {
            return false;
        }
        let mut changed = false;
        let (mut before, mut here) = (0, near(&self.filled, at, plane, width));
        for (word, &selected) in selected.iter().enumerate() {
            let after = if word + 1 < width { near(&self.filled, at + word + 1, plane, width) } else { 0 };
            let touched = touched(before, here, after) & selected;
            if touched != self.filled[at + word] {
                self.filled[at + word] = spread(touched, selected);
                changed = true;
            }
            (before, here) = (here, after);
        }
        changed
    }
}

/// A word of a fill with those of the 8 rows around its own.
#[inline(always)]
fn near(filled: &[u64], at: usize, plane: usize, width: usize) -> u64 {
    let in_plane = |at: usize| filled[at - width] | filled[at] | filled[at + width];
    in_plane(at - plane) | in_plane(at) | in_plane(at + plane)
}

/// A word of a row with the neighbours of its voxels along the row; `before` and `after` are the words beside it.
#[inline(always)]
fn touched(before: u64, here: u64, after: u64) -> u64 {
    here | here << 1 | before >> 63 | here >> 1 | after << 63
}

/// All runs of `selected` that have a voxel of `from`.
#[inline(always)]
fn spread(from: u64, selected: u64) -> u64 {
    // Upwards: a carry runs through a run.
    let mut fill = (selected.wrapping_add(from) ^ selected | from) & selected;
    // Downwards, by 1, 2, 4 .. voxels whose way is free.
    let mut free = selected;
    for step in [1, 2, 4, 8, 16, 32] {
        fill |= free & fill >> step;
        free &= free >> step;
    }
    fill
}

/// Finds the selected voxels of a slab, and fills from one of the longest run of the fullest word.
struct Begin<'a> {
    slab: &'a mut Slab,
    labels: &'a [u8],
    columns: usize,
    depth: usize,
    table: Option<&'a [u8; 256]>,
}

impl Kernel for Begin<'_> {
    type Output = Result<bool>;

    #[inline(always)]
    fn run(self) -> Result<bool> {
        let Self { slab, labels, columns, depth, table } = self;
        let (what, width, rows) = ("the search for components", bits::words(depth), labels.len() / depth);
        (slab.columns, slab.width) = (columns, width);
        clear(&mut slab.selected, rows * width, what)?;
        let planes = rows / columns;
        let plane_size = slab.plane_size();
        clear(&mut slab.filled, (planes + 2) * plane_size, what)?;
        clear(&mut slab.is_due, planes + 2, what)?;
        for (labels, words) in labels.chunks_exact(depth).zip(slab.selected.chunks_exact_mut(width)) {
            bits::pack_selected(labels, table, words);
        }
        let fullest = slab.selected.iter().enumerate().max_by_key(|(_, word)| word.count_ones());
        let Some((at, &word)) = fullest.filter(|(_, word)| **word > 0) else { return Ok(true) };
        let mut longest = word;
        while longest & longest >> 1 != 0 {
            longest &= longest >> 1;
        }
        let (row, word) = (at / width, at % width);
        let (i, j) = (row / columns + 1, row % columns + 1);
        let place = i * slab.plane_size() + j * width + word;
        slab.filled[place] = 1 << longest.trailing_zeros();
        slab.is_due[i - 1..=i + 1].fill(true);
        Ok(slab.fill())
    }
}

fn clear<T: Clone + Default>(data: &mut Vec<T>, count: usize, what: &str) -> Result<()> {
    data.clear();
    allocate::reserve(data, count, what)?;
    data.resize(count, T::default());
    Ok(())
}

struct Fill<'a>(&'a mut Slab);

impl Kernel for Fill<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        self.0.fill()
    }
}

struct Count<'a>(&'a [u64]);

impl Kernel for Count<'_> {
    type Output = u64;

    #[inline(always)]
    fn run(self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

/// Sets what is selected and not filled to 0.
struct Clear<'a> {
    slab: &'a Slab,
    labels: &'a mut [u8],
    depth: usize,
}

impl Kernel for Clear<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { slab, labels, depth } = self;
        let (width, columns) = (slab.width, slab.columns);
        for (row, labels) in labels.chunks_exact_mut(depth).enumerate() {
            let selected = &slab.selected[row * width..][..width];
            let filled = &slab.plane(row / columns + 1)[(row % columns + 1) * width..][..width];
            for ((labels, selected), filled) in labels.chunks_mut(64).zip(selected).zip(filled) {
                let mut lost = selected & !filled;
                while lost != 0 {
                    labels[lost.trailing_zeros() as usize] = 0;
                    lost &= lost - 1;
                }
            }
        }
    }
}

/// Leaves the largest of the slabs' fills and those that touch it, from slab to slab.
fn join(slabs: &mut [Slab]) {
    let size = |slab: &Slab| simd::run(Count(slab.inner()));
    let Some((largest, _)) = slabs.iter().enumerate().max_by_key(|(_, slab)| size(slab)) else { return };
    for at in largest + 1..slabs.len() {
        if !touch(slabs[at - 1].plane(slabs[at - 1].last()), slabs[at].plane(1), slabs[at].width) {
            slabs[at].filled.fill(0);
        }
    }
    for at in (0..largest).rev() {
        if !touch(slabs[at].plane(slabs[at].last()), slabs[at + 1].plane(1), slabs[at].width) {
            slabs[at].filled.fill(0);
        }
    }
}

/// Whether the fills of two planes, one right after the other, touch.
fn touch(above: &[u64], below: &[u64], width: usize) -> bool {
    let rows = above.len() / width - 2;
    (0..rows).any(|row| {
        let near = |word: usize| (0..3).fold(0, |near, next| near | above[(row + next) * width + word]);
        (0..width).any(|word| {
            let before = if word > 0 { near(word - 1) } else { 0 };
            let after = if word + 1 < width { near(word + 1) } else { 0 };
            touched(before, near(word), after) & below[(row + 1) * width + word] != 0
        })
    })
}

/// Shows each slab its neighbours' outer planes. Says whether one of them is news to it.
fn exchange(slabs: &mut [Slab]) -> bool {
    let mut is_new = false;
    for at in 1..slabs.len() {
        let (before, after) = slabs.split_at_mut(at);
        if let (Some(above), Some(below)) = (before.last_mut(), after.first_mut()) {
            let last = above.last();
            is_new |= below.take_over(0, 1, above.plane(last));
            is_new |= above.take_over(last + 1, last, below.plane(1));
        }
    }
    is_new
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{bits, both};
    use crate::volume::Shape3;

    const LARGEST: crate::config::KeepLargest = crate::config::KeepLargest {
        applied_labels: None,
        independent: true,
        connectivity: crate::config::Connectivity::Corners,
        num_components: 1,
    };

    /// A way of one voxel's width that winds inwards, in a square of this size.
    fn spiral(size: usize) -> Vec<u8> {
        let mut square = vec![0; size * size];
        let steps = [1, size as isize, -1, -(size as isize)];
        let legs = (0..).map(|turn| (size - 1).saturating_sub(turn / 2 * 2)).take_while(|leg| *leg > 0);
        let mut at = 0;
        square[at] = 1;
        for (leg, step) in [size - 1].into_iter().chain(legs).zip(steps.into_iter().cycle()) {
            for _ in 0..leg {
                at = at.wrapping_add_signed(step);
                square[at] = 1;
            }
        }
        square
    }

    #[test]
    fn runs_are_filled_from_any_of_their_voxels() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state ^ state >> 31
        };
        for _ in 0..10_000 {
            let selected = next() | next();
            let from = selected & next() & next();
            let mut expected = 0;
            bits::for_each_run(&[selected], |start, end| {
                let run = u64::MAX >> (64 - (end - start)) << start;
                expected |= if run & from != 0 { run } else { 0 };
            });
            assert_eq!(spread(from, selected), expected, "{from:x} in {selected:x}");
        }
    }

    #[test]
    fn a_component_too_winding_to_be_filled_is_left_to_the_other_search() {
        for (size, is_filled) in [(21, true), (161, false)] {
            // A plane of nothing, and a voxel of its own in the next one.
            let shape = Shape3::new([3, size as i64, size as i64]).unwrap();
            let mut expected = spiral(size);
            expected.resize(shape.count(), 0);
            let mut data = expected.clone();
            data[2 * size * size] = 1;
            let mut labels = Labels::new(&data, shape).unwrap();
            assert_eq!(keep(&mut labels, None, shape.count(), &mut Vec::new()).unwrap(), is_filled);
            assert_eq!(labels.data(), if is_filled { &expected } else { &data });
            assert_eq!(both::keep_largest(&Labels::new(&data, shape).unwrap(), &LARGEST).data(), expected);
        }
    }
}
