//! KeepLargestConnectedComponent: by filling where one component outweighs all others, else by union-find over runs.
//!
//! A run is a maximal row of selected voxels. Slabs of planes are searched for runs, and their runs joined, in parallel;
//! then the slabs are joined at their borders. Runs are numbered in C order and the lowest number is the root of its
//! component, so numbering components by their roots is numbering them by their first voxels.

mod majority;
mod slab;

use std::cmp::Reverse;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use triton_backend_api::Result;

use super::buffers::Labels;
use super::threads::Threads;
use super::{allocate, reference};
use crate::config::{Connectivity, KeepLargest};
use slab::{Slab, union};

/// The working memory of past searches, for the next ones: where scores are noise it is as large as a volume.
pub(super) struct Scratch {
    free: Mutex<Vec<Search>>,
    limit: usize,
}

/// The working memory of one search.
#[derive(Default)]
struct Search {
    /// Of the search for one component that outweighs all others.
    fills: Vec<majority::Slab>,
    slabs: Vec<Slab>,
    /// For each run of all slabs its parent, and then the number of its component.
    numbers: Vec<u32>,
}

impl Scratch {
    /// Keeps the working memory of at most `limit` searches.
    pub fn new(limit: usize) -> Self {
        Self { free: Mutex::new(Vec::new()), limit }
    }

    fn take(&self) -> Search {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn keep(&self, search: Search) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.limit {
            free.push(search);
        }
    }
}

pub(super) fn keep_largest(
    mut labels: Labels,
    keep: &KeepLargest,
    threads: &Threads,
    scratch: &Scratch,
) -> Result<Labels> {
    let selected = reference::components::selected(&labels, keep);
    let unions: Vec<&[u8]> =
        if keep.independent { selected.chunks(1).collect() } else { vec![selected.as_slice()] };
    let mut search = scratch.take();
    for selected in unions {
        keep_largest_of(&mut labels, selected, keep, threads, &mut search)?;
    }
    scratch.keep(search);
    Ok(labels)
}

/// Keeps the largest components of the union of the selected labels and sets their other voxels to 0.
fn keep_largest_of(
    labels: &mut Labels,
    selected: &[u8],
    keep: &KeepLargest,
    threads: &Threads,
    search: &mut Search,
) -> Result<()> {
    let [planes, columns, depth] = labels.shape().dims();
    // Run numbers and ends are 32 bits wide. A row's runs are at most half of its voxels, rounded up.
    let most_runs = (planes * columns).saturating_mul(depth.div_ceil(2));
    if depth >= u32::MAX as usize || most_runs >= u32::MAX as usize {
        return reference::components::keep_largest_of(labels, selected, keep);
    }
    let slab_size = planes.div_ceil(threads.count()) * columns * depth;
    let mut is_selected = [0; 256];
    for label in selected {
        is_selected[usize::from(*label)] = 1;
    }
    let plain = labels.highest() <= 1 && selected == [1];
    let table = (!plain).then_some(&is_selected);
    let Search { fills, slabs, numbers } = search;
    let is_usual = keep.num_components == 1 && keep.connectivity == Connectivity::Corners;
    if is_usual && majority::keep(labels, table, slab_size, fills)? {
        return Ok(());
    }
    slabs.resize_with(labels.data().len().div_ceil(slab_size), Slab::default);
    let pieces = labels.data().par_chunks(slab_size).zip(&mut *slabs);
    pieces.try_for_each(|(labels, slab)| slab.search(labels, columns, depth, table, keep.connectivity))?;

    join(slabs, numbers, columns, keep)?;
    let sizes = components(slabs, numbers)?;
    if sizes.len() <= keep.num_components {
        return Ok(());
    }
    let kept = largest(&sizes, keep.num_components)?;
    let (bases, numbers) = (bases(slabs), &*numbers);
    labels.data_mut().par_chunks_mut(slab_size).zip(&*slabs).zip(bases).for_each(|((labels, slab), base)| {
        slab.clear(labels, depth, |run| !kept[numbers[base + run] as usize]);
    });
    Ok(())
}

/// The number of each slab's first run.
fn bases(slabs: &[Slab]) -> Vec<usize> {
    let mut next = 0;
    let mut base = |slab: &Slab| {
        next += slab.runs.len();
        next - slab.runs.len()
    };
    slabs.iter().map(&mut base).collect()
}

/// Leaves one parent for each run of all slabs in `parents`, with the slabs joined.
fn join(slabs: &[Slab], parents: &mut Vec<u32>, columns: usize, keep: &KeepLargest) -> Result<()> {
    parents.clear();
    allocate::reserve(parents, slabs.iter().map(|slab| slab.runs.len()).sum(), "the search for components")?;
    let bases = bases(slabs);
    for (slab, base) in slabs.iter().zip(&bases) {
        parents.extend(slab.parents.iter().map(|parent| parent + *base as u32));
    }
    for (pair, bases) in slabs.windows(2).zip(bases.windows(2)) {
        let ([above, below], [base_above, base_below]) = (pair, bases) else { continue };
        slab::join_planes(above, below, columns, keep.connectivity, |a, b| {
            union(parents, (base_above + a) as u32, (base_below + b) as u32);
        });
    }
    Ok(())
}

/// Turns parents into numbers of components, and returns the components' sizes.
fn components(slabs: &[Slab], numbers: &mut [u32]) -> Result<Vec<u64>> {
    let mut sizes: Vec<u64> = Vec::new();
    // Neighbouring runs are mostly of one component: its size is added up here before it is written there.
    let (mut last, mut added) = (0, 0);
    let runs = slabs.iter().flat_map(|slab| &slab.runs);
    for (at, run) in runs.enumerate() {
        let parent = numbers[at] as usize;
        let number = if parent == at {
            allocate::reserve(&mut sizes, 1, "the list of components")?;
            sizes.push(0);
            sizes.len() - 1
        } else {
            // Parents come before their children, so this one is a number already.
            numbers[parent] as usize
        };
        numbers[at] = number as u32;
        if number != last {
            sizes[last] += added;
            (last, added) = (number, 0);
        }
        added += u64::from(run.end - run.start);
    }
    if let Some(size) = sizes.get_mut(last) {
        *size += added;
    }
    Ok(sizes)
}

/// Which components stay. Of equal sizes the one that begins last in C order does.
fn largest(sizes: &[u64], count: usize) -> Result<Vec<bool>> {
    let mut kept = allocate::filled(sizes.len(), false, "the list of components")?;
    if count == 1 {
        if let Some((at, _)) = sizes.iter().enumerate().max_by_key(|(at, size)| (**size, *at)) {
            kept[at] = true;
        }
        return Ok(kept);
    }
    let mut ranked = Vec::new();
    allocate::reserve(&mut ranked, sizes.len(), "the list of components")?;
    ranked.extend(0..sizes.len());
    ranked.select_nth_unstable_by_key(count, |at| Reverse((sizes[*at], *at)));
    for at in &ranked[..count] {
        kept[*at] = true;
    }
    Ok(kept)
}
