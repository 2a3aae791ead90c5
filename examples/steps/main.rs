//! Runs single steps of the pipeline on .npy files, so that other programs can compare them with a reference.
//!
//! One JSON command per line on standard input, one JSON answer per line on standard output, until the input ends:
//!
//! ```text
//! {"step": "config", "parameters": {"mode": "nearest"}}
//! {"step": "prepare", "parameters": {}, "inputs": ["ct.npy"], "outputs": ["resized.npy"]}
//! {"step": "argmax", "input": "logits.npy", "output": "labels.npy"}
//! {"step": "keep_largest", "parameters": {}, "input": "labels.npy", "output": "mask.npy"}
//! {"step": "contour", "input": "mask.npy", "output": "contour.npy"}
//! {"step": "restore", "input": "mask.npy", "output": "native.npy", "crop_start": [0, 1, 2], "crop_end": [9, 9, 9],
//!  "input_shape": [10, 10, 10], "align_corners": false}
//! {"step": "write", "type": "FP16", "input": "mask.npy", "output": "mask_fp16.npy"}
//! {"step": "finish", "parameters": {}, "input": "logits.npy", "mask": "mask.npy", "contour": "contour.npy"}
//! ```
//!
//! With the argument `kernels` the steps are the CUDA kernels, compiled for the host.
//!
//! Parameters are the strings of `config.pbtxt`. A failed step answers `{"error": .., "code": ..}`. Volumes are float32
//! or int16, logits float32 or float16 with the classes first, label maps uint8. `seconds` is the step without the files.

// Defines the server's symbols: nothing here calls them, and the executable has to link.
use triton_fake_host as _;

#[cfg(feature = "cuda")]
#[path = "../../tests/kernels/host.rs"]
mod host;
#[cfg(feature = "cuda")]
mod kernels;
mod npy;

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::time::Instant;

use npy::Npy;
use serde_json::{Value, json};
use triton_spleenseg::config::PipelineConfig;
use triton_spleenseg::cpu::{Cpu, HostDevice, Input, Labels, Logits, Output, Threads};
use triton_spleenseg::native::Placement;
use triton_spleenseg::pipeline::{Pipeline, Wanted};
use triton_spleenseg::volume::{BoundingBox, LabelType, LogitType, Shape3, VoxelType};

type Answer = Result<Value, Box<dyn Error>>;

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1).as_deref() {
        None => serve(&Cpu::new(Threads::new(0)?, 1)),
        #[cfg(feature = "cuda")]
        Some("kernels") => serve(&kernels::Kernels::default()),
        Some(other) => Err(format!("unknown device {other}; without one it is the CPU, with \"kernels\" the CUDA kernels compiled for the host").into()),
    }
}

fn serve(device: &impl HostDevice) -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let answer =
            serde_json::from_str(&line?).map_err(Into::into).and_then(|command| run(device, &command));
        let answer = answer.unwrap_or_else(|error| {
            let code =
                error.downcast_ref().map(|error: &triton_backend_api::Error| format!("{:?}", error.code()));
            json!({ "error": error.to_string(), "code": code })
        });
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn run(device: &impl HostDevice, command: &Value) -> Answer {
    match text(command, "step")? {
        "config" => Ok(json!({ "ignored": config(command)?.ignored })),
        "prepare" => prepare(device, command),
        "argmax" => argmax(device, command),
        "keep_largest" => keep_largest(device, command),
        "contour" => contour(device, command),
        "restore" => restore(device, command),
        "write" => write(device, command),
        "finish" => finish(device, command),
        step => Err(format!("unknown step {step}").into()),
    }
}

fn prepare(device: &impl HostDevice, command: &Value) -> Answer {
    let pipeline = Pipeline::new(&config(command)?);
    let files = texts(command, "inputs")?.into_iter().map(Npy::read).collect::<Result<Vec<_>, _>>()?;
    let inputs = files.iter().map(input).collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    let prepared = pipeline.prepare(device, &inputs)?;
    let seconds = start.elapsed().as_secs_f64();
    let mut volumes = Vec::new();
    for (volume, path) in prepared.iter().zip(texts(command, "outputs")?) {
        let bytes: Vec<u8> = volume.tensor.data().iter().flat_map(|value| value.to_ne_bytes()).collect();
        npy::write(path, "<f4", &volume.tensor_shape.dims(), &bytes)?;
        volumes.push(json!({
            "crop_start": volume.placement.crop.start,
            "crop_end": volume.placement.crop.end,
            "input_shape": volume.placement.input_shape.dims(),
            "nan_count": volume.nan_count,
            "inf_count": volume.inf_count,
        }));
    }
    Ok(json!({ "volumes": volumes, "seconds": seconds }))
}

fn argmax(device: &impl HostDevice, command: &Value) -> Answer {
    let file = Npy::read(text(command, "input")?)?;
    let start = Instant::now();
    let found = device.argmax(&logits(&file)?)?;
    let seconds = start.elapsed().as_secs_f64();
    save(&found.labels, text(command, "output")?)?;
    Ok(json!({ "nan_count": found.nan_count, "seconds": seconds }))
}

fn keep_largest(device: &impl HostDevice, command: &Value) -> Answer {
    let keep = config(command)?.keep;
    let labels = labels(&Npy::read(text(command, "input")?)?)?;
    let start = Instant::now();
    let kept = device.keep_largest(labels, &keep)?;
    let seconds = start.elapsed().as_secs_f64();
    save(&kept, text(command, "output")?)?;
    Ok(json!({ "seconds": seconds }))
}

fn contour(device: &impl HostDevice, command: &Value) -> Answer {
    let labels = labels(&Npy::read(text(command, "input")?)?)?;
    let start = Instant::now();
    let contour = device.contour(&labels)?;
    let seconds = start.elapsed().as_secs_f64();
    save(&contour, text(command, "output")?)?;
    Ok(json!({ "seconds": seconds }))
}

fn restore(device: &impl HostDevice, command: &Value) -> Answer {
    let labels = labels(&Npy::read(text(command, "input")?)?)?;
    let placement = placement(command)?;
    let start = Instant::now();
    let (native, voxels) = device.restore(&labels, &placement)?;
    let seconds = start.elapsed().as_secs_f64();
    if device.count(&labels, &placement)? != voxels {
        return Err("the voxels are not as many when they are counted alone".into());
    }
    save(&native, text(command, "output")?)?;
    Ok(json!({ "grid": voxels.grid, "native": voxels.native, "seconds": seconds }))
}

fn placement(command: &Value) -> Result<Placement, Box<dyn Error>> {
    let three = |key| -> Result<[i64; 3], _> {
        serde_json::from_value(command.get(key).cloned().unwrap_or_default())
    };
    let crop = BoundingBox { start: three("crop_start")?, end: three("crop_end")? };
    let align_corners = command.get("align_corners").and_then(Value::as_bool).unwrap_or(false);
    Ok(Placement { crop, input_shape: shape(&three("input_shape")?)?, align_corners })
}

fn write(device: &impl HostDevice, command: &Value) -> Answer {
    let (label_type, descr) = match text(command, "type")? {
        "FP32" => (LabelType::Fp32, "<f4"),
        "FP16" => (LabelType::Fp16, "<f2"),
        "UINT8" => (LabelType::Uint8, "|u1"),
        "INT32" => (LabelType::Int32, "<i4"),
        "INT64" => (LabelType::Int64, "<i8"),
        "BOOL" => (LabelType::Bool, "|b1"),
        other => return Err(format!("unknown type {other}").into()),
    };
    let labels = labels(&Npy::read(text(command, "input")?)?)?;
    let mut bytes = vec![0; labels.shape().count() * label_type.size()];
    let start = Instant::now();
    device.write(&labels, Output::new(&mut bytes, label_type))?;
    let seconds = start.elapsed().as_secs_f64();
    npy::write(text(command, "output")?, descr, &labels.shape().dims(), &bytes)?;
    Ok(json!({ "seconds": seconds }))
}

fn finish(device: &impl HostDevice, command: &Value) -> Answer {
    let pipeline = Pipeline::new(&config(command)?);
    let file = Npy::read(text(command, "input")?)?;
    let logits = logits(&file)?;
    let wanted = Wanted {
        mask: command.get("mask").is_some(),
        contour: command.get("contour").is_some(),
        ..Default::default()
    };
    // As if the input had been of the network's size.
    let crop = BoundingBox { start: [0; 3], end: logits.shape().dims().map(|size| size as i64) };
    let placement = Placement { crop, input_shape: logits.shape(), align_corners: false };
    let start = Instant::now();
    let done = pipeline.finish(device, &logits, &placement, wanted)?;
    let seconds = start.elapsed().as_secs_f64();
    for (labels, key) in [(done.labels.mask, "mask"), (done.labels.contour, "contour")] {
        if let Some(labels) = labels {
            save(&labels, text(command, key)?)?;
        }
    }
    Ok(json!({ "nan_count": done.nan_count, "seconds": seconds }))
}

fn input(file: &Npy) -> Result<Input<'_>, Box<dyn Error>> {
    let voxel_type = match file.descr.as_str() {
        "<f4" => VoxelType::Fp32,
        "<i2" => VoxelType::Int16,
        other => return Err(format!("volumes are <f4 or <i2, not {other}").into()),
    };
    Ok(Input::new(file.data(), voxel_type, shape(&file.shape)?)?)
}

fn logits(file: &Npy) -> Result<Logits<'_>, Box<dyn Error>> {
    let logit_type = match file.descr.as_str() {
        "<f4" => LogitType::Fp32,
        "<f2" => LogitType::Fp16,
        other => return Err(format!("logits are <f4 or <f2, not {other}").into()),
    };
    let (&classes, volume) = file.shape.split_first().ok_or("logits have four axes")?;
    Ok(Logits::new(file.data(), logit_type, usize::try_from(classes)?, shape(volume)?)?)
}

fn labels(file: &Npy) -> Result<Labels, Box<dyn Error>> {
    match file.descr.as_str() {
        "|u1" => Ok(Labels::new(file.data(), shape(&file.shape)?)?),
        other => Err(format!("label maps are |u1, not {other}").into()),
    }
}

fn save(labels: &Labels, path: &str) -> Result<(), Box<dyn Error>> {
    npy::write(path, "|u1", &labels.shape().dims(), labels.data())
}

fn shape(sizes: &[i64]) -> Result<Shape3, Box<dyn Error>> {
    Ok(Shape3::new(sizes.try_into().map_err(|_| format!("a volume has three axes, not {sizes:?}"))?)?)
}

fn config(command: &Value) -> Result<PipelineConfig, Box<dyn Error>> {
    let parameters: BTreeMap<_, _> = match command.get("parameters") {
        Some(parameters) => serde_json::from_value(parameters.clone())?,
        None => BTreeMap::new(),
    };
    Ok(PipelineConfig::from_parameters(&parameters)?)
}

fn text<'c>(command: &'c Value, key: &str) -> Result<&'c str, Box<dyn Error>> {
    Ok(command
        .get(key)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("the command needs a text \"{key}\""))?)
}

fn texts<'c>(command: &'c Value, key: &str) -> Result<Vec<&'c str>, Box<dyn Error>> {
    let values =
        command.get(key).and_then(Value::as_array).ok_or_else(|| format!("the command needs \"{key}\""))?;
    values.iter().map(|value| value.as_str().ok_or_else(|| format!("\"{key}\" holds texts").into())).collect()
}
