//! The runs of a slab of planes, and how runs are joined.

use triton_backend_api::Result;

use crate::config::Connectivity;
use crate::cpu::simd::{self, Kernel};
use crate::cpu::{allocate, bits};

/// Selected voxels of one row, from `start` to before `end`.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub start: u32,
    pub end: u32,
}

/// Some planes of a volume: their runs, and their rows as bits.
#[derive(Default)]
pub(super) struct Slab {
    /// All runs in C order.
    pub runs: Vec<Run>,
    /// For each run, a run of the same component that is not after it.
    pub parents: Vec<u32>,
    /// Where each row's runs end among all runs, with a 0 before the first.
    ends: Vec<usize>,
    /// The selected voxels, `width` words a row.
    words: Vec<Word>,
    width: usize,
}

/// 64 voxels of a row.
#[derive(Clone, Copy, Default)]
struct Word {
    selected: u64,
    /// Those that begin a run.
    starts: u64,
    /// How many runs of the slab begin before this word.
    before: u32,
}

impl Word {
    /// The run of the last start at or before a bit. There must be one in this row.
    #[inline(always)]
    fn run_at(self, bit: u32) -> usize {
        (self.before + (self.starts << (63 - bit)).count_ones()) as usize - 1
    }
}

impl Slab {
    /// Finds and joins the runs of these planes, in place of those found before. Without `table` the labels are 0 or 1
    /// and 1 is selected.
    pub fn search(
        &mut self,
        labels: &[u8],
        columns: usize,
        depth: usize,
        table: Option<&[u8; 256]>,
        connectivity: Connectivity,
    ) -> Result<()> {
        simd::run(Search { slab: self, labels, columns, depth, table, connectivity })
    }

    fn rows(&self) -> usize {
        self.ends.len() - 1
    }

    fn row(&self, row: usize) -> &[Word] {
        &self.words[row * self.width..(row + 1) * self.width]
    }

    /// Sets the voxels of the runs that `is_cleared` names to 0.
    pub fn clear(&self, labels: &mut [u8], depth: usize, is_cleared: impl Fn(usize) -> bool) {
        for (labels, ends) in labels.chunks_exact_mut(depth).zip(self.ends.windows(2)) {
            for at in ends[0]..ends[1] {
                if is_cleared(at) {
                    labels[self.runs[at].start as usize..self.runs[at].end as usize].fill(0);
                }
            }
        }
    }
}

struct Search<'a> {
    slab: &'a mut Slab,
    labels: &'a [u8],
    columns: usize,
    depth: usize,
    table: Option<&'a [u8; 256]>,
    connectivity: Connectivity,
}

impl Kernel for Search<'_> {
    type Output = Result<()>;

    #[inline(always)]
    fn run(self) -> Result<()> {
        let Self { slab, labels, columns, depth, table, connectivity } = self;
        let (what, width, rows) = ("the search for components", bits::words(depth), labels.len() / depth);
        slab.runs.clear();
        slab.parents.clear();
        slab.ends.clear();
        allocate::reserve(&mut slab.ends, rows + 1, what)?;
        slab.ends.push(0);
        slab.words.clear();
        allocate::reserve(&mut slab.words, rows * width, what)?;
        slab.words.resize(rows * width, Word::default());
        slab.width = width;
        let mut packed = allocate::filled(width, 0, what)?;
        for (row, labels) in labels.chunks_exact(depth).enumerate() {
            bits::pack_selected(labels, table, &mut packed);
            let mut last = 0;
            let mut before = slab.runs.len() as u32;
            for (word, selected) in slab.words[row * width..].iter_mut().zip(&packed) {
                let starts = selected & !(selected << 1 | last >> 63);
                *word = Word { selected: *selected, starts, before };
                before += starts.count_ones();
                last = *selected;
            }
            // A row of so many voxels has at most half as many runs, rounded up.
            allocate::reserve(&mut slab.runs, depth / 2 + 1, what)?;
            allocate::reserve(&mut slab.parents, depth / 2 + 1, what)?;
            slab.parents.extend(slab.runs.len() as u32..before);
            bits::for_each_run(&packed, |start, end| slab.runs.push(Run { start, end }));
            slab.ends.push(slab.runs.len());

            let mut parents = std::mem::take(&mut slab.parents);
            let mut join = |a: usize, b: usize| union(&mut parents, a as u32, b as u32);
            let above = row.checked_sub(columns).map(|above| slab.row(above));
            if above.is_some() {
                join_row(slab, row - columns, columns, slab.row(row), connectivity, &mut join);
            }
            if !row.is_multiple_of(columns)
                && let Some(reach) = reach(1, connectivity)
            {
                // What lies above touches the row before as well only where corners join.
                let known = above.filter(|_| connectivity == Connectivity::Corners);
                touching(slab.row(row - 1), slab.row(row), reach, known, &mut join);
            }
            slab.parents = parents;
        }
        Ok(())
    }
}

/// Calls `touch(a, b)` for the touching runs of a row, `below`, and of the plane above it, in which `row` is right above.
#[inline(always)]
fn join_row(
    above: &Slab,
    row: usize,
    columns: usize,
    below: &[Word],
    connectivity: Connectivity,
    mut touch: impl FnMut(usize, usize),
) {
    let middle = above.row(row);
    if let Some(reach) = reach(1, connectivity) {
        touching(middle, below, reach, None, &mut touch);
    }
    let Some(reach) = reach(2, connectivity) else { return };
    let j = row % columns;
    for other in [(j > 0).then(|| row - 1), (j + 1 < columns).then(|| row + 1)].into_iter().flatten() {
        touching(above.row(other), below, reach, Some(middle), &mut touch);
    }
}

/// Whether two runs whose rows differ along so many axes touch also where one begins right after the other's end; none
/// where they never touch.
fn reach(differing: usize, connectivity: Connectivity) -> Option<bool> {
    let allowed = connectivity as usize;
    (differing <= allowed).then_some(differing < allowed)
}

/// Calls `touch(a, b)` for every pair of touching runs of two rows.
///
/// Runs touch where they overlap, with `reach` each one longer by a voxel. An overlap begins where one of them does, so
/// each pair is met once: at a start of either row that lies in a run of the other. A meeting that lies also in a run of
/// `known`, a row whose runs are joined with both rows' already and reach one voxel further, tells nothing new.
#[inline(always)]
fn touching(
    above: &[Word],
    below: &[Word],
    reach: bool,
    known: Option<&[Word]>,
    mut touch: impl FnMut(usize, usize),
) {
    let (mut last_above, mut last_below, mut last_known) = (0, 0, 0);
    for (at, (a, b)) in above.iter().zip(below).enumerate() {
        let longer = |word: u64, last: u64| word | word << 1 | last >> 63;
        let (in_a, in_b) = match reach {
            true => (longer(a.selected, last_above), longer(b.selected, last_below)),
            false => (a.selected, b.selected),
        };
        let known = known.map_or(0, |known| known[at].selected);
        let mut meetings = ((a.starts & in_b) | (b.starts & in_a)) & !longer(known, last_known);
        while meetings != 0 {
            let bit = meetings.trailing_zeros();
            touch(a.run_at(bit), b.run_at(bit));
            meetings &= meetings - 1;
        }
        (last_above, last_below, last_known) = (a.selected, b.selected, known);
    }
}

/// Calls `touch` for every pair of touching runs of the last plane of one slab and the first plane of the next.
pub(super) fn join_planes(
    above: &Slab,
    below: &Slab,
    columns: usize,
    connectivity: Connectivity,
    mut touch: impl FnMut(usize, usize),
) {
    let last = above.rows() - columns;
    for row in 0..columns {
        join_row(above, last + row, columns, below.row(row), connectivity, &mut touch);
    }
}

/// Joins two components; the lower root becomes the root of both.
#[inline(always)]
pub(super) fn union(parents: &mut [u32], a: u32, b: u32) {
    if parents[a as usize] == parents[b as usize] {
        return;
    }
    let (a, b) = (root(parents, a), root(parents, b));
    if a != b {
        parents[a.max(b) as usize] = a.min(b);
    }
}

/// The root of a run's component. Halves the way there for the next time.
#[inline(always)]
fn root(parents: &mut [u32], mut at: u32) -> u32 {
    loop {
        let parent = parents[at as usize];
        if parent == at {
            return at;
        }
        let next = parents[parent as usize];
        parents[at as usize] = next;
        at = next;
    }
}
