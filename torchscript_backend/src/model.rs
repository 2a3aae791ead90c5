//! One loaded version of a TorchScript model: what its configuration and its file say.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tch::{Device, Kind};
use triton_backend_api::{
    DataType, Error, InstanceKind, Model, ModelConfig, ModelContext, Result, TensorConfig, log,
};

use crate::binding::{Arguments, ConfigInput, ResultAt, bind_inputs, bind_outputs};
use crate::config::{Note, Settings};
use crate::cuda::Copier;
use crate::kinds::kind_of;
use crate::libtorch;
use crate::signature::Signature;
use crate::torch::{Network, set_process_options};

pub struct TorchModel {
    pub name: String,
    pub settings: Settings,
    pub inputs: Vec<InputSpec>,
    pub outputs: Vec<OutputSpec>,
    pub arguments: Arguments,
    /// Whether the network may write to its input or keep it, which memory lent by the server does not allow.
    pub copies_input: bool,
    /// Whether the first axis of all tensors is Triton's batch axis.
    pub batched: bool,
    /// Copies tensors that the server has on a GPU, for networks on the CPU.
    pub copier: Copier,
    path: PathBuf,
    /// The one network of all instances on a device, where they share weights.
    shared: Mutex<Vec<Arc<Network>>>,
}

pub struct InputSpec {
    pub name: String,
    pub data_type: DataType,
    pub kind: Kind,
    pub optional: bool,
}

pub struct OutputSpec {
    pub name: String,
    pub data_type: DataType,
    pub kind: Kind,
    /// The shape the configuration promises, the batch axis included; -1 is any.
    pub shape: Vec<i64>,
    pub at: ResultAt,
}

impl Model for TorchModel {
    fn load(cx: &ModelContext) -> Result<Self> {
        // libtorch looks for its part for GPUs once, at the first convolution of the process, on the CPU too. A model on
        // the CPU must not settle that for those that come later.
        if libtorch::has_driver()
            && let Err(why) = libtorch::gpus()
        {
            log!(Verbose, "no model can use a GPU: {why}");
        }
        let (model, notes) = Self::new(cx.name(), cx.config(), &cx.version_directory())?;
        for note in
            notes.into_iter().chain(set_process_options(&model.settings).into_iter().map(Note::Warning))
        {
            match note {
                Note::Information(text) => log!(Info, "model {}: {text}", cx.name()),
                Note::Warning(text) => log!(Warn, "model {}: {text}", cx.name()),
            }
        }
        Ok(model)
    }

    fn preferred_instances() -> &'static [InstanceKind] {
        // The server passes over GPUs where it has none.
        &[InstanceKind::Gpu, InstanceKind::Cpu]
    }
}

impl TorchModel {
    /// Reads the configuration and the signature of the file in `folder`; also what is worth a line in the log.
    pub fn new(name: &str, config: &ModelConfig, folder: &Path) -> Result<(Self, Vec<Note>)> {
        refuse_unsupported(config)?;
        let parameters = config.parameters();
        let (settings, mut notes) =
            Settings::parse(parameters.iter().map(|(key, value)| (key.as_str(), value.as_str())))?;
        let path = folder.join(config.default_model_filename().unwrap_or("model.pt"));
        let signature = Signature::read(&path)?;
        let batched = config.max_batch_size() > 0;
        let inputs = config.inputs()?.iter().map(input_spec).collect::<Result<Vec<_>>>()?;
        let names: Vec<_> =
            inputs.iter().map(|input| ConfigInput { name: &input.name, optional: input.optional }).collect();
        let (arguments, input_warning) = bind_inputs(&names, &signature)?;
        let (outputs, output_warning) = output_specs(config, batched, &signature)?;
        notes.extend([input_warning, output_warning].into_iter().flatten().map(Note::Warning));
        let copies_input = signature.reason_to_copy.is_some();
        if let Some(statement) = signature.reason_to_copy {
            notes.push(Note::Information(format!(
                "the network may write to its input or keep it (`{statement}`), so it gets a copy of each request's"
            )));
        }
        let (name, copier, shared) = (name.to_owned(), Copier::new(1), Mutex::default());
        Ok((
            Self { name, settings, inputs, outputs, arguments, copies_input, batched, copier, path, shared },
            notes,
        ))
    }

    /// A network for an instance on `device`: its own, or the shared one.
    pub fn network(&self, device: Device) -> Result<Arc<Network>> {
        let load = || Network::load(&self.path, &self.settings, device).map(Arc::new);
        if !self.settings.weight_sharing {
            return load();
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(network) = shared.iter().find(|network| network.device() == device) {
            return Ok(network.clone());
        }
        let network = load()?;
        shared.push(network.clone());
        Ok(network)
    }
}

/// What a configuration may ask of a backend and this one does not do; ignoring it would give wrong results.
fn refuse_unsupported(config: &ModelConfig) -> Result<()> {
    let json = config.json();
    let filled = |pointer: &str| {
        json.pointer(pointer).and_then(|list| list.as_array()).is_some_and(|list| !list.is_empty())
    };
    for (pointer, what) in [
        ("/batch_input", "batch_input"),
        ("/batch_output", "batch_output"),
        ("/sequence_batching/state", "sequence_batching with state"),
    ] {
        if filled(pointer) {
            return Err(Error::unsupported(format!(
                "the configuration has {what}, which this backend does not offer"
            )));
        }
    }
    let inputs = json.get("input").and_then(|list| list.as_array()).map(Vec::as_slice).unwrap_or_default();
    if inputs
        .iter()
        .any(|input| input.get("allow_ragged_batch").and_then(|flag| flag.as_bool()) == Some(true))
    {
        return Err(Error::unsupported(
            "the configuration has allow_ragged_batch, which this backend does not offer",
        ));
    }
    Ok(())
}

fn kind(what: &str, tensor: &TensorConfig) -> Result<Kind> {
    kind_of(tensor.data_type).ok_or_else(|| {
        Error::unsupported(format!(
            "{what} {} is {}; accepted: TYPE_FP32, TYPE_FP16, TYPE_BF16, TYPE_FP64, TYPE_INT8, TYPE_INT16, TYPE_INT32, \
             TYPE_INT64, TYPE_UINT8, TYPE_BOOL",
            tensor.name,
            tensor.data_type.config_name()
        ))
    })
}

fn input_spec(tensor: &TensorConfig) -> Result<InputSpec> {
    let kind = kind("input", tensor)?;
    Ok(InputSpec { name: tensor.name.clone(), data_type: tensor.data_type, kind, optional: tensor.optional })
}

fn output_specs(
    config: &ModelConfig,
    batched: bool,
    signature: &Signature,
) -> Result<(Vec<OutputSpec>, Option<String>)> {
    let tensors = config.outputs()?;
    let names: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    let (bound, warning) = bind_outputs(&names, signature)?;
    let specs = tensors.iter().zip(bound).enumerate().map(|(index, (tensor, at))| {
        // With `reshape` the server turns the model's shape, given there, into the declared dims.
        let reshape =
            config.json().pointer(&format!("/output/{index}/reshape")).filter(|reshape| !reshape.is_null());
        let dims = match reshape {
            Some(reshape) => reshaped(reshape, &tensor.name)?,
            None => tensor.dims.clone(),
        };
        let shape = batched.then_some(-1).into_iter().chain(dims).collect();
        let kind = kind("output", tensor)?;
        Ok(OutputSpec { name: tensor.name.clone(), data_type: tensor.data_type, kind, shape, at })
    });
    Ok((specs.collect::<Result<_>>()?, warning))
}

fn reshaped(reshape: &serde_json::Value, name: &str) -> Result<Vec<i64>> {
    let dims = reshape.get("shape").and_then(|shape| shape.as_array()).map(Vec::as_slice).unwrap_or_default();
    let number = |dim: &serde_json::Value| dim.as_i64().or_else(|| dim.as_str()?.parse().ok());
    dims.iter().map(number).collect::<Option<_>>().ok_or_else(|| {
        Error::invalid_arg(format!("output {name} has the reshape {reshape}; accepted: integers"))
    })
}
