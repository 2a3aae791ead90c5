//! The model and its instances, as Triton loads and calls them. A request's way is [`serve`], top to bottom.

use build_id::BUILD_ID;
use serde_json::Value;
use triton_backend_api::{
    ConcurrentInstance, Error, InstanceContext, InstanceKind, Model, ModelConfig, ModelContext, OwnedReply,
    OwnedRequest, Reply, Request, Result, log,
};

use crate::answer::{self, Provenance, Spacing};
use crate::bridge::Bridge;
use crate::config::{Limits, PipelineConfig};
use crate::cpu::{Cpu, Threads};
use crate::interface::{self, INPUT, Interface, OUTPUTS};
use crate::pipeline::{Pipeline, PreparedVolume, Results, Segmentation};
use crate::segmenter::{Scores, Segmenter};
use crate::timed::Timed;
use crate::volume::Shape3;

/// One loaded version of the model.
pub struct SpleenModel {
    name: String,
    interface: Interface,
    pipeline: Pipeline,
    provenance: Provenance,
    segmenter: Segmenter,
    threads: Threads,
    limits: Limits,
    max_in_flight: usize,
    /// Volumes that one instance works on at a time, at most.
    volumes: usize,
}

impl Model for SpleenModel {
    fn load(cx: &ModelContext) -> Result<Self> {
        let name = cx.name().to_owned();
        let config = PipelineConfig::from_parameters(&cx.config().parameters())?;
        if !config.ignored.is_empty() {
            log!(Info, "{name}: parameters {:?} are accepted and not needed by this backend", config.ignored);
        }
        let provenance = Provenance::new(&config);
        let (hash, canonical) = (provenance.config_hash(), config.canonical());
        log!(Info, "{name}: {BUILD_ID}, configuration {hash}: {canonical}");
        Ok(Self {
            interface: Interface::new(cx.config(), &config)?,
            pipeline: Pipeline::new(&config),
            provenance,
            segmenter: Segmenter::new(cx.server().clone(), config.segmentation),
            threads: Threads::new(config.threads)?,
            limits: config.limits.beside(cx.config().max_batch_size()),
            max_in_flight: config.max_in_flight,
            volumes: config.max_in_flight.saturating_mul(cx.config().max_batch_size().max(1) as usize),
            name,
        })
    }

    fn auto_complete(config: &ModelConfig) -> Result<Option<Value>> {
        interface::auto_complete(config)
    }

    fn preferred_instances() -> &'static [InstanceKind] {
        &[InstanceKind::Cpu]
    }
}

/// One instance: a device.
pub struct SpleenInstance {
    device: AnyDevice,
    max_in_flight: usize,
}

/// The devices an instance can run on.
enum AnyDevice {
    Cpu(Cpu),
}

impl ConcurrentInstance for SpleenInstance {
    type Model = SpleenModel;

    fn create(model: &SpleenModel, cx: &InstanceContext) -> Result<Self> {
        let device = match cx.kind() {
            InstanceKind::Cpu => AnyDevice::Cpu(Cpu::new(model.threads.clone(), model.volumes)),
            other => {
                return Err(Error::unsupported(format!(
                    "instance '{}' is {other}; accepted by this build is KIND_CPU",
                    cx.name()
                )));
            }
        };
        model.segmenter.keep_more_outputs(model.volumes);
        log!(Info, "{}: instance on {}", cx.name(), cx.kind());
        Ok(Self { device, max_in_flight: model.max_in_flight })
    }

    fn max_in_flight(&self) -> usize {
        self.max_in_flight
    }

    fn start(&self, model: &SpleenModel, request: OwnedRequest, mut reply: OwnedReply) {
        let mut stage = Stage::Read;
        let result = match &self.device {
            AnyDevice::Cpu(device) => serve(model, device, &request, &mut reply, &mut stage),
        };
        if let Err(e) = &result {
            let (name, id) = (&model.name, request.id().unwrap_or_default());
            log!(Warn, "{name}: request '{id}' failed in {stage:?}: {e}");
        }
        reply.send(result);
    }
}

/// Where a request is, for the log.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Read,
    Prepare,
    Segment,
    Finish,
    Write,
}

/// Answers one request: read, prepare, the network, finish, write.
fn serve<D: Bridge>(
    model: &SpleenModel,
    device: &D,
    request: &Request,
    reply: &mut Reply,
    stage: &mut Stage,
) -> Result<()> {
    let (interface, pipeline) = (&model.interface, &model.pipeline);
    let device = &Timed::new(device);
    let wanted = interface.wanted(&request.requested_outputs()?)?;
    let spacing = Spacing::of(request)?;
    let input = request.input(INPUT)?;
    let (volumes, input_shape) = interface::volumes(input.shape())?;
    model.limits.check(volumes, input_shape)?;
    let prepared = {
        let source = device.read(&input)?;
        let volumes = device.volumes(&source, interface.voxel_type, input_shape)?;
        *stage = Stage::Prepare;
        check_cancelled(request)?;
        pipeline.prepare(device, &volumes)?
    };
    let size = one_size(&prepared)?;
    answer::places(reply, &prepared)?;
    let odd = prepared.iter().map(|volume| volume.nan_count + volume.inf_count).sum();
    warn_not_finite(model, request, "voxels of INPUT0 are NaN or infinite", odd);

    *stage = Stage::Segment;
    reply.mark_compute_start();
    let (tensors, placements): (Vec<_>, Vec<_>) =
        prepared.into_iter().map(|volume| (volume.tensor, volume.placement)).unzip();
    let scores = device.time("network", || model.segmenter.segment(device, request, tensors, size))?;
    reply.mark_compute_end();
    scores.iter().try_for_each(|scores| interface.check_classes(scores.classes()))?;
    let networks: Vec<_> = scores.iter().map(Scores::network).collect::<Result<_>>()?;
    model.provenance.write(reply, &networks)?;

    *stage = Stage::Finish;
    check_cancelled(request)?;
    let mut results = Vec::with_capacity(scores.len());
    for (scores, placement) in scores.into_iter().zip(&placements) {
        results.push(pipeline.finish(device, &scores.logits(device)?, placement, wanted)?);
    }
    let odd = results.iter().map(|result| result.nan_count).sum();
    warn_not_finite(model, request, "scores of the network are NaN", odd);

    let voxels: Vec<_> = results.iter().map(|result| result.voxels).collect();
    answer::sizes(reply, &voxels, spacing)?;

    *stage = Stage::Write;
    write(device, reply, interface, &results, size, input_shape)?;
    log!(Verbose, "{}: request '{}': steps {device}", model.name, request.id().unwrap_or_default());
    Ok(())
}

/// Writes the outputs that were asked for.
fn write<D: Bridge>(
    device: &D,
    reply: &mut Reply,
    interface: &Interface,
    results: &[Segmentation<D::Labels>],
    size: Shape3,
    input_shape: Shape3,
) -> Result<()> {
    // For each output, one label map for each volume; none where it was not asked for.
    let mut labels = Results::<Vec<&D::Labels>>::default();
    for result in results {
        for (all, one) in labels.as_mut().zip(result.labels.as_ref()).into_array() {
            all.extend(one);
        }
    }
    let sizes = Results { mask: size, contour: size, mask_native: input_shape, contour_native: input_shape };
    let outputs = OUTPUTS.zip(interface.outputs).zip(sizes).zip(labels);
    for (((name, declared), size), labels) in outputs.into_array() {
        let (Some(label_type), false) = (declared, labels.is_empty()) else { continue };
        let (data_type, shape) =
            (interface::data_type(label_type), interface::output_shape(labels.len(), size));
        let output = reply.output_in(D::OUTPUT_MEMORY, name, data_type, &shape)?;
        let written = device.write_output(&labels, output, label_type);
        written.map_err(|e| e.context(format!("output '{name}'")))?;
    }
    Ok(())
}

/// The size that all volumes of a request have after resizing; they share one output tensor.
fn one_size<T>(prepared: &[PreparedVolume<T>]) -> Result<Shape3> {
    let sizes: Vec<_> = prepared.iter().map(|volume| volume.tensor_shape).collect();
    match sizes.as_slice() {
        [first, rest @ ..] if rest.iter().all(|size| size == first) => Ok(*first),
        _ => {
            let sizes: Vec<_> = sizes.iter().map(ToString::to_string).collect();
            Err(Error::invalid_arg(format!(
                "the volumes of this batch have sizes {sizes:?} after cropping; accepted are equal ones, or a \
                 spatial_size without -1"
            )))
        }
    }
}

fn check_cancelled(request: &Request) -> Result<()> {
    if request.is_cancelled() { Err(Error::cancelled("the request was cancelled")) } else { Ok(()) }
}

fn warn_not_finite(model: &SpleenModel, request: &Request, what: &str, count: u64) {
    if count > 0 {
        let (name, id) = (&model.name, request.id().unwrap_or_default());
        log!(Warn, "{name}: request '{id}': {count} {what}");
    }
}
