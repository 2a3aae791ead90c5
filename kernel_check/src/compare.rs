//! Cases on a GPU, compared with the CPU: from machine code and from PTX, in several manners, many times.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use triton_backend_api::{Error, Result};
use triton_spleenseg::cpu::reference::Reference;
use triton_spleenseg::cpu::{self, HostDevice, Threads};
use triton_spleenseg::cuda::Gpu;
use triton_spleenseg::volume::Shape3;

use crate::cases::{self, Case};
use crate::driver::{Driver, Manner};
use crate::patterns::numbers;
use crate::real::{self, Sizes};
use crate::report::Report;
use crate::steps::Steps;

/// Voxels of all repetitions of a case, so that smaller ones are repeated more often.
const VOXELS: usize = 80_000_000;

/// One GPU with its kernels from one image, and how much was compared there.
struct Checked<'g> {
    gpu: &'g Gpu,
    report: &'g Report,
    runs: AtomicUsize,
}

impl<'g> Checked<'g> {
    fn new(gpu: &'g Gpu, report: &'g Report) -> Self {
        Self { gpu, report, runs: AtomicUsize::new(0) }
    }

    /// Compares `times` times; what is wrong is reported.
    ///
    /// # Errors
    /// The GPU is of no more use.
    fn check(
        &self,
        manner: Manner,
        cpu: &impl HostDevice,
        times: usize,
        name: &str,
        case: &Case,
    ) -> Result<()> {
        let driver = Driver::new(self.gpu, manner)?;
        let what = format!("{name}: {case}; {driver:?}");
        let compared = self.report.watch(what, || Steps { machine: &driver, cpu, times }.check(case));
        let beside = driver.check().map_err(|why| format!("{case}; {driver:?}: {why}"));
        for why in [compared, beside].into_iter().filter_map(std::result::Result::err) {
            self.report.wrong(&format!("{name}: {why}"));
        }
        self.runs.fetch_add(times, Ordering::Relaxed);
        self.gpu.ready()
    }

    fn say(&self, what: &str) {
        let runs = self.runs.load(Ordering::Relaxed);
        self.report.say(&format!("{what} from {}: {runs} runs compared", self.gpu.image()));
    }
}

/// Manners in turn.
fn manners() -> impl Iterator<Item = Manner> {
    Manner::ALL.into_iter().cycle()
}

/// All cases that are not random, then random ones and patterns in random sizes until then; from all images at once, which so
/// disturb each other.
pub fn at_once(gpus: &[Gpu], sizes: &Sizes, seed: u64, until: Instant, report: &Report) -> Result<()> {
    on_each(gpus, |gpu| {
        let checked = Checked::new(gpu, report);
        first_round(&checked)?;
        let mut next = numbers(seed);
        loop {
            let seed = next();
            random_round(&checked, sizes, seed)?;
            pattern_round(&checked, sizes, seed)?;
            if Instant::now() > until {
                break;
            }
        }
        checked.say("small volumes");
        Ok(())
    })
}

/// On a thread for each.
fn on_each(gpus: &[Gpu], work: impl Fn(&Gpu) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> = gpus.iter().map(|gpu| scope.spawn(|| work(gpu))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| Error::internal("a panic")));
        ended.collect::<Vec<_>>().into_iter().try_for_each(|outcome| outcome?)
    })
}

fn first_round(checked: &Checked<'_>) -> Result<()> {
    let reference = Reference::default();
    let name = "small volumes";
    for manner in Manner::ALL {
        for case in cases::small() {
            checked.check(manner, &reference, 1, name, &case)?;
        }
    }
    for (manner, case) in manners().zip(cases::large_windows()) {
        checked.check(manner, &reference, 1, name, &case)?;
    }
    Ok(())
}

/// Random cases, the same for the same seed.
fn random_round(checked: &Checked<'_>, sizes: &Sizes, seed: u64) -> Result<()> {
    let bytes = seed.to_ne_bytes().repeat(4);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (strategy, reference) = (cases::any_step(), Reference::default());
    for (number, manner) in (0..sizes.random).zip(manners()) {
        let tree = strategy.new_tree(&mut runner).map_err(|why| Error::internal(why.to_string()))?;
        for case in tree.current() {
            let name = format!("case {number} of seed {seed}");
            checked.check(manner, &reference, sizes.times, &name, &case)?;
        }
    }
    Ok(())
}

/// Every pattern in a volume of random size.
fn pattern_round(checked: &Checked<'_>, sizes: &Sizes, seed: u64) -> Result<()> {
    let mut next = numbers(seed);
    let shape = Shape3::new([(); 3].map(|()| 1 + (next() % sizes.axis) as i64))?;
    let cpu = fast_cpu(2)?;
    let cases = cases::components_of_every_pattern(shape).chain(cases::contours_of_every_pattern(shape));
    for (number, (manner, case)) in manners().zip(cases).enumerate() {
        let name = format!("pattern {number}");
        checked.check(manner, &cpu, sizes.times, &name, &case)?;
    }
    Ok(())
}

fn fast_cpu(threads: usize) -> Result<cpu::Cpu> {
    Ok(cpu::Cpu::new(Threads::new(threads)?, 1))
}

/// Volumes of the pipeline's sizes, from one image after the other. What there is no time for is left out, and said.
pub fn real_sizes(gpus: &[Gpu], sizes: &Sizes, until: Instant, report: &Report) -> Result<()> {
    let checked: Vec<_> = gpus.iter().map(|gpu| Checked::new(gpu, report)).collect();
    let cpu = fast_cpu(0)?;
    let mut in_time = true;
    for (manner, case) in manners().zip(real::cases(sizes)) {
        in_time = Instant::now() < until;
        if !in_time {
            break;
        }
        let case = case.make();
        let times = (VOXELS / case.voxels()).clamp(1, 2 * sizes.times);
        for checked in &checked {
            checked.check(manner, &cpu, times, "real sizes", &case)?;
        }
    }
    checked
        .iter()
        .for_each(|checked| checked.say(&format!("volumes of {} and {}", sizes.grid, sizes.volume)));
    if !in_time {
        report.say("not all of these volumes were compared: there was no time");
    }
    Ok(())
}
