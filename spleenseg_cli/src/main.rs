//! Spleen segmentation without a server: NIfTI in, mask out, by the code of the two backends.

mod arguments;
mod axes;
mod scan;

use std::io::Write;
use std::process::ExitCode;

use arguments::{Arguments, Asked, USAGE};
use scan::Scan;
use triton_backend_api::{Error, Result};
use triton_pytorch::offline::SegmentationNetwork;
use triton_spleenseg::config::PipelineConfig;
use triton_spleenseg::cpu::{Cpu, Input, Labels, Logits, Threads};
use triton_spleenseg::pipeline::{Pipeline, Results};
use triton_spleenseg::volume::{LogitType, VoxelType};

fn main() -> ExitCode {
    let (text, code) = match Arguments::parse(std::env::args_os().skip(1)) {
        Ok(Asked::Help) => (USAGE.to_owned(), ExitCode::SUCCESS),
        Ok(Asked::Version) => (format!("spleenseg-cli {}", env!("CARGO_PKG_VERSION")), ExitCode::SUCCESS),
        Ok(Asked::Run(arguments)) => match run(&arguments) {
            Ok(line) => (line, ExitCode::SUCCESS),
            Err(error) => return failed(&error.to_string(), 1),
        },
        Err(error) => return failed(&error, 2),
    };
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => code,
        // Nobody listens; the files are written.
        Err(_) => ExitCode::FAILURE,
    }
}

fn failed(text: &str, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {text}");
    ExitCode::from(code)
}

/// Segments one scan; returns the line about it.
fn run(arguments: &Arguments) -> Result<String> {
    let config = PipelineConfig::from_parameters(&arguments.pipeline)?;
    let pipeline = Pipeline::new(&config);
    let cpu = Cpu::new(Threads::new(config.threads)?, 1);
    let network = SegmentationNetwork::load(
        &arguments.model,
        arguments.network.iter().map(|(key, value)| (key.as_str(), value.as_str())),
    )?;
    let scan = Scan::read(&arguments.input)?;

    let (voxels, shape) = scan.voxels(arguments.axes)?;
    let prepared = pipeline
        .prepare(&cpu, &[Input::new(voxels.as_slice(), VoxelType::Fp32, shape)?])?
        .pop()
        .ok_or_else(|| Error::internal("the pipeline prepared no volume"))?;
    drop(voxels);
    let (size, placement) = (prepared.tensor_shape, prepared.placement);
    let scores = network.segment(prepared.tensor.into_data().as_slice(), size.dims())?;
    let logit_type = if scores.half { LogitType::Fp16 } else { LogitType::Fp32 };
    let logits = Logits::new(scores.bytes.as_slice(), logit_type, scores.classes, size)?;
    let wanted =
        Results { mask_native: true, contour_native: arguments.contour.is_some(), ..Results::default() };
    let found = pipeline.finish(&cpu, &logits, &placement, wanted)?;

    let mut count = 0;
    for (labels, path) in [
        (found.labels.mask_native, Some(&arguments.output)),
        (found.labels.contour_native, arguments.contour.as_ref()),
    ] {
        if let (Some(labels), Some(path)) = (labels, path) {
            scan.write(&labels, arguments.axes, path)?;
            count = count.max(above_zero(&labels));
        }
    }
    let spleen = match count {
        0 => "no spleen found".to_owned(),
        count => format!("{:.1} mL", scan.millilitres(count)),
    };
    Ok(format!("{}\t{spleen}", arguments.output.display()))
}

fn above_zero(labels: &Labels) -> usize {
    labels.data().iter().filter(|label| **label > 0).count()
}
