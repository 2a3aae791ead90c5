//! The CUDA kernels on a GPU, compared with the steps on the CPU, and their times. It needs the GPU's driver and nothing
//! else; `scripts/gpu_check.sh` runs it. The cases are those of `tests/kernels`, and volumes of real sizes.
//!
//! Exit code: 0 all equal; 1 something is not, or failed; 2 there is no GPU that can be used.

#![allow(clippy::unwrap_used)] // in what it shares with tests/kernels

// Defines the server's symbols: nothing here calls them, and the executable has to link.
use triton_fake_host as _;

#[path = "../../tests/kernels/cases.rs"]
mod cases;
mod compare;
#[path = "../../tests/kernels/driver.rs"]
mod driver;
#[path = "../../tests/kernels/machine.rs"]
mod machine;
#[path = "../../tests/kernels/patterns.rs"]
mod patterns;
mod real;
mod report;
#[path = "../../tests/kernels/steps.rs"]
mod steps;
mod times;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use lexopt::Arg::Long;
use lexopt::ValueExt;
use triton_backend_api::Result;
use triton_spleenseg::cpu::Threads;
use triton_spleenseg::cuda::{Code, CudaError, Gpu};

use real::Sizes;
use report::Report;

const USAGE: &str =
    "usage: kernel_check [--times] [--gpu NUMBER] [--seed NUMBER] [--seconds NUMBER] [--small]
Compares the CUDA kernels on a GPU with the steps on the CPU, or with --times measures them.
--seconds is how long it compares, at most and about (default 45); --seed another set of random cases;
--small takes small volumes alone, each case once.";

struct Options {
    gpu: i32,
    seed: u64,
    time: Duration,
    small: bool,
    times: bool,
}

impl Options {
    /// None where only the usage is asked for.
    fn parse() -> Result<Option<Self>, lexopt::Error> {
        let mut options = Self { gpu: 0, seed: 1, time: Duration::from_secs(45), small: false, times: false };
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("gpu") => options.gpu = parser.value()?.parse()?,
                Long("seed") => options.seed = parser.value()?.parse()?,
                Long("seconds") => options.time = Duration::from_secs(parser.value()?.parse()?),
                Long("small") => options.small = true,
                Long("times") => options.times = true,
                Long("help") => return Ok(None),
                other => return Err(other.unexpected()),
            }
        }
        Ok(Some(options))
    }

    fn sizes(&self) -> Sizes {
        if self.small { Sizes::small() } else { Sizes::real() }
    }

    fn open(&self, code: Code) -> std::result::Result<Gpu, CudaError> {
        let threads = Threads::new(2).map_err(|e| CudaError::NoDevice(e.to_string()))?;
        Gpu::open("kernel_check", self.gpu, code, threads, 2)
    }
}

fn main() -> ExitCode {
    let report = Report::new();
    let options = match Options::parse() {
        Ok(Some(options)) => options,
        Ok(None) => {
            report.say(USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            report.say(&format!("{error}\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    let opened = report.watch("opening the GPU".to_owned(), || options.open(Code::Any));
    let gpu = match opened {
        Ok(gpu) => gpu,
        Err(error @ (CudaError::NoDriver(_) | CudaError::NoDevice(_))) => {
            report.say(&error.to_string());
            return ExitCode::from(2);
        }
        Err(error) => {
            report.say(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    report.say(&format!("{}, {}; seed {}", gpu.description(), gpu.image(), options.seed));
    let done = match options.times {
        true => times::measure(&gpu, &options.sizes(), &report),
        false => compare(&options, gpu, &report),
    };
    if let Err(error) = done {
        report.wrong(&error.to_string());
    }
    report.end()
}

/// `CUDA_ERROR_JIT_COMPILER_NOT_FOUND`: the driver came without what compiles PTX.
const NO_COMPILER: u32 = 221;

fn compare(options: &Options, gpu: Gpu, report: &Report) -> Result<()> {
    let mut gpus = vec![gpu];
    let began = Instant::now();
    match report.watch("compiling the PTX".to_owned(), || options.open(Code::Ptx)) {
        Ok(gpu) => {
            report.say(&format!("the PTX is compiled and loaded in {:.1} s", began.elapsed().as_secs_f64()));
            gpus.push(gpu);
        }
        Err(CudaError::Driver { code: NO_COMPILER, text, .. }) => {
            report.say(&format!("the PTX is not checked: {text}"));
        }
        Err(error) => return Err(error.into_error()),
    }
    let sizes = options.sizes();
    let (began, whole) = (Instant::now(), if options.small { Duration::ZERO } else { options.time });
    let until = if options.small { began + options.time } else { began + options.time * 2 / 3 };
    compare::real_sizes(&gpus, &sizes, until, report)?;
    compare::at_once(&gpus, &sizes, options.seed, began + whole, report)
}
