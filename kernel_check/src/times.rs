//! How long the steps and their kernels take on a GPU, by events, beside what moving their bytes takes at least.

use std::cell::RefCell;

use triton_backend_api::Result;
use triton_spleenseg::config::{Connectivity, KeepLargest, ResizeMode};
use triton_spleenseg::cuda::kernels::Kernel;
use triton_spleenseg::cuda::queue::{DeviceSpan, Launch, Queue};
use triton_spleenseg::cuda::steps::{self, Indices, InputSpan, LabelsSpan, LogitsSpan};
use triton_spleenseg::cuda::{DeviceMemory, Gpu, Session};
use triton_spleenseg::volume::{LabelType, LogitType, VoxelType};

use crate::cases::{Image, Map, Scores, WINDOW};
use crate::patterns;
use crate::real::Sizes;
use crate::report::Report;

const STEP: &str = "measuring";
const WARM_UP: usize = 3;
const RUNS: usize = 20;
/// Bytes of the copy that the bandwidth is measured with.
const COPIED: usize = 256 << 20;

/// A session's queue that times every launch, where that is wanted.
struct Timed<'s> {
    session: &'s Session<'s>,
    launches: Option<RefCell<Vec<(Kernel, f32)>>>,
}

impl Queue for Timed<'_> {
    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        // SAFETY: the caller's promise.
        let work = || unsafe { self.session.launch(launch) };
        let Some(launches) = &self.launches else { return work() };
        launches.borrow_mut().push((launch.kernel, self.session.time(STEP, work)?));
        Ok(())
    }

    fn fill(&self, span: DeviceSpan<'_>, byte: u8) -> Result<()> {
        self.session.fill(span, byte)
    }

    fn copy(&self, from: DeviceSpan<'_>, to: DeviceSpan<'_>) -> Result<()> {
        self.session.copy(from, to)
    }

    fn multiprocessors(&self) -> u32 {
        self.session.multiprocessors()
    }
}

/// What is measured, and where it is told.
struct Meter<'s> {
    session: &'s Session<'s>,
    /// Bytes that a copy on the GPU reads and writes in a millisecond.
    bandwidth: f32,
    report: &'s Report,
}

fn median(mut values: Vec<f32>) -> f32 {
    values.sort_by(f32::total_cmp);
    values[values.len() / 2]
}

impl Meter<'_> {
    /// Tells the times of a step that moves at least so many bytes, and of its kernels; `prepare` is not counted.
    fn step(
        &self,
        name: &str,
        moved: usize,
        prepare: impl Fn() -> Result<()>,
        work: impl Fn(&Timed<'_>) -> Result<()>,
    ) -> Result<()> {
        self.report.watch(format!("times of {name}"), || self.times(name, moved, prepare, work))
    }

    fn times(
        &self,
        name: &str,
        moved: usize,
        prepare: impl Fn() -> Result<()>,
        work: impl Fn(&Timed<'_>) -> Result<()>,
    ) -> Result<()> {
        let session = self.session;
        let (mut whole, mut kernels) = (Vec::new(), Vec::<(Kernel, usize, Vec<f32>)>::new());
        for run in 0..WARM_UP + RUNS {
            prepare()?;
            let milliseconds = session.time(STEP, || work(&Timed { session, launches: None }))?;
            prepare()?;
            let timed = Timed { session, launches: Some(RefCell::default()) };
            work(&timed)?;
            if run < WARM_UP {
                continue;
            }
            whole.push(milliseconds);
            kernels.iter_mut().for_each(|(_, count, times)| {
                *count = 0;
                times.push(0.0);
            });
            for (kernel, milliseconds) in timed.launches.unwrap_or_default().into_inner() {
                let known = kernels.iter().position(|(known, ..)| *known == kernel);
                let at = known.unwrap_or_else(|| {
                    kernels.push((kernel, 0, vec![0.0]));
                    kernels.len() - 1
                });
                let (_, count, times) = &mut kernels[at];
                *count += 1;
                *times.last_mut().unwrap() += milliseconds;
            }
        }
        let (whole, floor) = (median(whole), moved as f32 / self.bandwidth);
        self.report.say(&format!("  {name:<34}{whole:>10.3}{floor:>10.3}{:>10.1}", whole / floor));
        for (kernel, count, times) in kernels {
            let name =
                format!("{}{}", kernel.name(), if count > 1 { format!(" x {count}") } else { String::new() });
            self.report.say(&format!("    {name:<32}{:>10.3}", median(times)));
        }
        Ok(())
    }

    fn holding(&self, bytes: &[u8]) -> Result<DeviceMemory> {
        let memory = self.session.memory(bytes.len(), STEP)?;
        self.session.send(bytes, memory.span(), STEP)?;
        Ok(memory)
    }

    fn room(&self, byte_size: usize) -> Result<DeviceMemory> {
        self.session.memory(byte_size, STEP)
    }

    fn foreground_and_resize(&self, sizes: &Sizes, image: &Image) -> Result<()> {
        let (grid, voxel_type, shape) = (sizes.grid.count(), image.voxel_type, image.shape);
        let name = match voxel_type {
            VoxelType::Fp32 => "FP32",
            VoxelType::Int16 => "INT16",
        };
        let (voxels, found) = (self.holding(&image.bytes)?, self.room(steps::FOUND_BYTES)?);
        let input = InputSpan { voxels: voxels.span(), voxel_type, shape };
        self.step(&format!("foreground, {name}"), image.bytes.len(), nothing, |queue| {
            steps::reset_foreground(queue, found.span())?;
            steps::find_foreground(queue, &input, 0..shape.count(), &WINDOW, found.span())
        })?;
        let plan = sizes.plan(ResizeMode::Area);
        let (out, scratch) = (self.room(grid * 4)?, self.room(steps::resize_scratch())?);
        let moved = plan.crop.size()?.count() * voxel_type.size() + grid * 4;
        self.step(&format!("resize (area), {name}"), moved, nothing, |queue| {
            steps::crop_scale_resize(queue, &input, &plan, out.span(), scratch.span())
        })
    }

    fn argmax(&self, scores: &Scores) -> Result<()> {
        let Scores { logit_type, classes, shape, .. } = *scores;
        let memory = self.holding(&scores.bytes)?;
        let (labels, count) = (self.room(shape.count())?, self.room(8)?);
        let logits = LogitsSpan { scores: memory.span(), logit_type, classes, shape };
        let name = format!("argmax, {classes} classes, {logit_type:?}");
        self.step(&name, scores.bytes.len() + shape.count(), nothing, |queue| {
            steps::argmax(queue, &logits, labels.span(), count.span())
        })
    }

    fn components(&self, name: &str, map: &Map) -> Result<()> {
        let (original, labels) = (self.holding(&map.data)?, self.room(map.data.len())?);
        let width = Indices::of(map.shape);
        let scratch = self.room(steps::keep_largest_scratch(map.shape, width))?;
        let span = LabelsSpan { data: labels.span(), shape: map.shape, highest: 1 };
        let connectivity = Connectivity::Corners;
        let keep = KeepLargest { applied_labels: None, independent: true, connectivity, num_components: 1 };
        // In place: what does not stay has to be there again.
        let prepare = || self.session.copy(original.span(), labels.span());
        self.step(&format!("components, {name}"), map.data.len(), prepare, |queue| {
            steps::keep_largest(queue, &span, &keep, scratch.span(), width)
        })
    }

    fn of_mask(&self, sizes: &Sizes, map: &Map) -> Result<()> {
        let (shape, grid, placement) = (map.shape, map.shape.count(), sizes.placement(false));
        let labels = self.holding(&map.data)?;
        let span = LabelsSpan { data: labels.span(), shape, highest: 1 };
        let (out, scratch) = (self.room(grid)?, self.room(steps::contour_scratch(shape))?);
        self.step("contour", 2 * grid, nothing, |queue| {
            steps::contour(queue, &span, out.span(), scratch.span())
        })?;
        let counts = self.room(steps::COUNT_BYTES)?;
        self.step("count", 2 * grid, nothing, |queue| steps::count(queue, &span, &placement, counts.span()))?;
        let native = self.room(sizes.volume.count())?;
        self.step("restore", 2 * grid + sizes.volume.count(), nothing, |queue| {
            steps::restore(queue, &span, &placement, native.span(), counts.span())
        })?;
        for label_type in [LabelType::Fp32, LabelType::Fp16, LabelType::Int64] {
            let out = self.room(grid * label_type.size())?;
            let moved = grid + grid * label_type.size();
            self.step(&format!("write, {label_type:?}"), moved, nothing, |queue| {
                steps::convert(queue, &span, label_type, out.span())
            })?;
        }
        Ok(())
    }
}

fn nothing() -> Result<()> {
    Ok(())
}

/// Bytes that a copy on the GPU reads and writes in a millisecond, together.
fn bandwidth(session: &Session<'_>, byte_size: usize) -> Result<f32> {
    let (from, to) = (session.memory(byte_size, STEP)?, session.memory(byte_size, STEP)?);
    session.fill(from.span(), 0)?;
    let runs = (0..WARM_UP + RUNS).map(|_| session.time(STEP, || session.copy(from.span(), to.span())));
    let times = runs.skip(WARM_UP).collect::<Result<Vec<f32>>>()?;
    Ok(2.0 * byte_size as f32 / median(times))
}

/// Tells all of them, as a table.
pub fn measure(gpu: &Gpu, sizes: &Sizes, report: &Report) -> Result<()> {
    let session = &gpu.session()?;
    // Twice, for the first one finds the GPU with its clocks down.
    let copied = COPIED.min(16 * sizes.volume.count());
    bandwidth(session, copied)?;
    let bandwidth = bandwidth(session, copied)?;
    report.say(&format!(
        "a copy on the GPU reads and writes {:.0} GB/s together: a step's floor is its bytes at that rate",
        bandwidth / 1e6
    ));
    let meter = Meter { session, bandwidth, report };
    let (volume, grid) = (sizes.volume, sizes.grid);
    report.say(&format!("medians of {RUNS}, by events; input {volume}, grid {grid}"));
    report.say(&format!("  {:<34}{:>10}{:>10}{:>10}", "step", "ms", "floor, ms", "x floor"));
    for voxel_type in [VoxelType::Fp32, VoxelType::Int16] {
        meter.foreground_and_resize(sizes, &sizes.scan(voxel_type))?;
    }
    for logit_type in [LogitType::Fp32, LogitType::Fp16] {
        meter.argmax(&sizes.scores(2, logit_type))?;
    }
    let organ = sizes.organ();
    meter.components("an organ", &organ)?;
    for (name, pattern) in patterns::all(grid) {
        if ["noise at 15 %", "checkerboard", "spirals"].contains(&name) {
            meter.components(name, &Map { data: patterns::mask(grid, 7, pattern), shape: grid })?;
        }
    }
    meter.of_mask(sizes, &organ)
}
