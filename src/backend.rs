//! The model and its instances, as Triton loads and calls them. A request's way is [`serve`], top to bottom.

use build_id::BUILD_ID;
use serde_json::Value;
use triton_backend_api::{
    ConcurrentInstance, Error, ErrorCode, InstanceContext, InstanceKind, Model, ModelConfig, ModelContext,
    OwnedReply, OwnedRequest, Reply, Request, Result, log,
};

use crate::answer::{self, Provenance, Spacing};
use crate::bridge::Bridge;
use crate::config::{Limits, PipelineConfig};
use crate::cpu::{Cpu, Threads};
#[cfg(feature = "cuda")]
use crate::cuda::{Code, Gpu};
use crate::interface::{self, INPUT, Interface, OUTPUTS};
use crate::metrics::{Metrics, Owner};
use crate::pipeline::{Pipeline, PreparedVolume, Results, Segmentation, Wanted};
use crate::segmenter::{Scores, Segmenter};
use crate::shadow::{Shadow, Turn};
use crate::timed::Timed;
use crate::volume::Shape3;
use crate::warm_up::{self, WarmUp};

/// One loaded version of the model.
pub struct SpleenModel {
    name: String,
    interface: Interface,
    pipeline: Pipeline,
    provenance: Provenance,
    segmenter: Segmenter,
    metrics: Metrics,
    shadow: Option<Shadow>,
    /// Warm-up requests that each instance gets.
    warm_up_requests: u64,
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
        let owner = Owner::new(&name, cx.version());
        let shadow =
            config.shadow.clone().map(|shadow| Shadow::new(cx.server().clone(), &name, &owner, shadow));
        Ok(Self {
            interface: Interface::new(cx.config(), &config)?,
            pipeline: Pipeline::new(&config),
            provenance,
            segmenter: Segmenter::new(cx.server().clone(), cx.memory(), config.segmentation),
            metrics: Metrics::new(&owner),
            shadow: shadow.transpose()?,
            warm_up_requests: warm_up::requests(cx.config()),
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
        // The server passes over GPUs where it has none.
        if cfg!(feature = "cuda") { &[InstanceKind::Gpu, InstanceKind::Cpu] } else { &[InstanceKind::Cpu] }
    }
}

/// One instance: a device.
pub struct SpleenInstance {
    device: AnyDevice,
    warm_up: WarmUp,
    max_in_flight: usize,
}

/// The devices an instance can run on.
enum AnyDevice {
    Cpu(Cpu),
    #[cfg(feature = "cuda")]
    Gpu(Box<Gpu>),
}

impl AnyDevice {
    fn new(model: &SpleenModel, cx: &InstanceContext) -> Result<Self> {
        match cx.kind() {
            InstanceKind::Cpu => {
                let cpu = Cpu::new(model.threads.clone(), model.volumes);
                if model.interface.has_native() {
                    cpu.keep_native(model.volumes);
                }
                Ok(Self::Cpu(cpu))
            }
            #[cfg(feature = "cuda")]
            InstanceKind::Gpu => {
                let gpu =
                    Gpu::open(cx.name(), cx.device_id(), Code::Any, model.threads.clone(), model.volumes)
                        .map_err(|e| {
                            e.into_error().context(format!("instance '{}' is KIND_GPU", cx.name()))
                        })?;
                Ok(Self::Gpu(Box::new(gpu)))
            }
            other => {
                let accepted = if cfg!(feature = "cuda") { "KIND_CPU and KIND_GPU" } else { "KIND_CPU" };
                Err(Error::unsupported(format!(
                    "instance '{}' is {other}; accepted by this build is {accepted}",
                    cx.name()
                )))
            }
        }
    }

    fn description(&self) -> &str {
        match self {
            Self::Cpu(_) => "the CPU",
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => gpu.description(),
        }
    }
}

impl ConcurrentInstance for SpleenInstance {
    type Model = SpleenModel;

    fn create(model: &SpleenModel, cx: &InstanceContext) -> Result<Self> {
        let device = AnyDevice::new(model, cx)?;
        model.segmenter.keep_more_outputs(model.volumes);
        log!(Info, "{}: instance on {}", cx.name(), device.description());
        Ok(Self { device, warm_up: WarmUp::new(model.warm_up_requests), max_in_flight: model.max_in_flight })
    }

    fn max_in_flight(&self) -> usize {
        self.max_in_flight
    }

    fn ready(&self) -> Result<()> {
        match &self.device {
            AnyDevice::Cpu(_) => Ok(()),
            #[cfg(feature = "cuda")]
            AnyDevice::Gpu(gpu) => gpu.ready(),
        }
    }

    fn start(&self, model: &SpleenModel, request: OwnedRequest, reply: OwnedReply) {
        let is_warm_up = self.warm_up.is_next();
        match &self.device {
            AnyDevice::Cpu(device) => run(model, device, request, reply, is_warm_up),
            #[cfg(feature = "cuda")]
            AnyDevice::Gpu(gpu) => match gpu.session() {
                Ok(session) => run(model, &session, request, reply, is_warm_up),
                Err(e) => reply.send(failed(model, &request, Stage::Read, e, is_warm_up)),
            },
        }
    }
}

/// Where a request is, for the log and the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Read,
    Prepare,
    Segment,
    Finish,
    Write,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Prepare => "prepare",
            Self::Segment => "segment",
            Self::Finish => "finish",
            Self::Write => "write",
        }
    }
}

/// One request from its arrival until it is answered, counted and, in its turn, on its way to the shadow model.
fn run<D: Bridge>(
    model: &SpleenModel,
    device: &D,
    request: OwnedRequest,
    mut reply: OwnedReply,
    is_warm_up: bool,
) {
    let device = Timed::new(device);
    let (name, id) = (&model.name, request.id().unwrap_or_default());
    let shadow = model.shadow.as_ref().filter(|_| !is_warm_up);
    let mut turn = shadow.and_then(|shadow| shadow.turn(&request));
    let mut stage = Stage::Read;
    let served = serve(model, &device, &request, &mut reply, &mut stage, turn.as_mut());
    model.metrics.steps(&device.steps());
    let (result, masks) = match served {
        Ok(masks) => (Ok(()), masks),
        Err(e) => (failed(model, &request, stage, e, is_warm_up), Vec::new()),
    };
    // Before the answer gives memory away.
    if let Some(times) = device.settle() {
        log!(Verbose, "{name}: request '{id}': on the GPU {times}");
    }
    let turn = turn.filter(|_| result.is_ok());
    reply.send(result);
    // The client has its answer: nothing from here on is at its cost.
    if let (Some(shadow), Some(turn)) = (shadow, turn) {
        match masks.into_iter().map(|mask| device.labels_to_host(mask)).collect::<Result<_>>() {
            Ok(masks) => shadow.compare(turn, id, masks),
            Err(e) => log!(Warn, "{name}: request '{id}': no comparison with the shadow model: {e}"),
        }
    }
}

/// Says that a request failed, counts it, and gives its answer. No warm-up is answered with an error: load order is free, so a
/// model must not fail to load because the network is not there yet; and stock Triton 2.51 often crashes where a warm-up fails.
fn failed(model: &SpleenModel, request: &Request, stage: Stage, e: Error, is_warm_up: bool) -> Result<()> {
    let (name, id, step) = (&model.name, request.id().unwrap_or_default(), stage.name());
    if !is_warm_up {
        log!(Warn, "{name}: request '{id}' failed in {step}: {e}");
        model.metrics.failure(step, e.code());
        return Err(e);
    }
    if stage == Stage::Segment && e.code() == ErrorCode::Unavailable {
        log!(Info, "{name}: a warm-up request got as far as the network: {e}");
    } else {
        log!(Warn, "{name}: a warm-up request failed in {step}, and the model loads: {e}");
    }
    Ok(())
}

/// Answers one request: read, prepare, the network, finish, write. Gives the masks, where they are to be compared.
fn serve<D: Bridge>(
    model: &SpleenModel,
    device: &Timed<'_, D>,
    request: &Request,
    reply: &mut Reply,
    stage: &mut Stage,
    mut turn: Option<&mut Turn>,
) -> Result<Vec<D::Labels>> {
    let (interface, pipeline) = (&model.interface, &model.pipeline);
    let wanted = interface.wanted(&request.requested_outputs()?)?;
    let spacing = Spacing::of(request)?;
    let input = request.input(INPUT)?;
    let (volumes, input_shape) = interface::volumes(input.shape())?;
    model.limits.check(volumes, input_shape)?;
    let prepared = {
        let source = device.read(&input)?;
        model.metrics.input(input.byte_size());
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
    let call = || device.time("network", || model.segmenter.segment(device, request, tensors, size));
    let scores = match turn.as_deref_mut() {
        Some(turn) => turn.copy_beside(&input, call),
        None => call(),
    }?;
    reply.mark_compute_end();
    scores.iter().try_for_each(|scores| interface.check_classes(scores.classes()))?;
    let networks: Vec<_> = scores.iter().map(Scores::network).collect::<Result<_>>()?;
    model.provenance.write(reply, &networks)?;

    *stage = Stage::Finish;
    check_cancelled(request)?;
    let mut results = Vec::with_capacity(scores.len());
    // What is compared is the mask, asked for or not; it is made in any case.
    let made = Wanted { mask: wanted.mask || turn.is_some(), ..wanted };
    for (scores, placement) in scores.into_iter().zip(&placements) {
        results.push(pipeline.finish(device, &scores.logits(device)?, placement, made)?);
    }
    let odd = results.iter().map(|result| result.nan_count).sum();
    warn_not_finite(model, request, "scores of the network are NaN", odd);

    let voxels: Vec<_> = results.iter().map(|result| result.voxels).collect();
    answer::sizes(reply, &voxels, spacing)?;
    model.metrics.volumes(voxels.len(), voxels.iter().filter(|voxels| voxels.grid == 0).count());

    *stage = Stage::Write;
    let bytes = write(device, reply, interface, wanted, &results, size, input_shape)?;
    model.metrics.output(bytes);
    log!(Verbose, "{}: request '{}': steps {device}", model.name, request.id().unwrap_or_default());
    let masks = results.into_iter().filter_map(|result| result.labels.mask);
    Ok(if turn.is_some() { masks.collect() } else { Vec::new() })
}

/// Writes the outputs that were asked for, and says how many bytes they are.
fn write<D: Bridge>(
    device: &D,
    reply: &mut Reply,
    interface: &Interface,
    wanted: Wanted,
    results: &[Segmentation<D::Labels>],
    size: Shape3,
    input_shape: Shape3,
) -> Result<usize> {
    let sizes = Results { mask: size, contour: size, mask_native: input_shape, contour_native: input_shape };
    // For each output, one label map for each volume.
    let mut labels = Results::<Vec<&D::Labels>>::default();
    for result in results {
        for (all, one) in labels.as_mut().zip(result.labels.as_ref()).into_array() {
            all.extend(one);
        }
    }
    let mut bytes = 0;
    let outputs = OUTPUTS.zip(interface.outputs).zip(sizes).zip(labels).zip(wanted);
    for ((((name, declared), size), labels), wanted) in outputs.into_array() {
        let (Some(label_type), true) = (declared, wanted) else { continue };
        let (data_type, shape) =
            (interface::data_type(label_type), interface::output_shape(labels.len(), size));
        let output = reply.output_in(device.output_memory(), name, data_type, &shape)?;
        bytes += output.byte_size();
        let written = device.write_output(&labels, output, label_type);
        written.map_err(|e| e.context(format!("output '{name}'")))?;
    }
    Ok(bytes)
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
