//! Requests into the arguments of one call of `forward()`.

use tch::{Device, TchError, Tensor};
use triton_backend_api::{Error, Request, Result, log};

use crate::binding::Arguments;
use crate::libtorch::{Lent, Value};
use crate::model::TorchModel;
use crate::results::Computed;
use crate::torch::Network;
use crate::torch_error::torch_error;
use crate::view::View;

/// One request's inputs, in the order of the configuration; `None` for an optional one that did not come.
pub struct Sample<'a> {
    tensors: Vec<Option<View<'a>>>,
    /// The extent of its batch axis.
    rows: i64,
    /// Which of the configured outputs it asks for.
    wanted: Vec<bool>,
}

impl<'a> Sample<'a> {
    /// Gathers what `request` brought for a network on `device`, in place where it lies there in one piece.
    pub fn gather(model: &TorchModel, request: &'a Request, device: Device) -> Result<Self> {
        let mut tensors: Vec<Option<View<'a>>> = model.inputs.iter().map(|_| None).collect();
        for index in 0..request.input_count()? {
            let input = request.input_by_index(index)?;
            let Some(position) = model.inputs.iter().position(|spec| spec.name == input.name()) else {
                return Err(Error::invalid_arg(format!(
                    "input {} is not in the configuration",
                    input.name()
                )));
            };
            let spec = &model.inputs[position];
            if input.data_type() != spec.data_type {
                return Err(Error::invalid_arg(format!(
                    "input {} is {}; accepted: {}",
                    spec.name,
                    input.data_type(),
                    spec.data_type
                )));
            }
            tensors[position] = Some(View::of(&input, device, &model.copier)?);
        }
        if let Some(missing) =
            model.inputs.iter().zip(&tensors).find(|(spec, view)| view.is_none() && !spec.optional)
        {
            return Err(Error::invalid_arg(format!("input {} is missing", missing.0.name)));
        }
        let rows = if model.batched { rows(model, &tensors)? } else { 1 };
        let names = request.requested_outputs()?;
        let wanted = model.outputs.iter().map(|spec| names.contains(&spec.name)).collect();
        Ok(Self { tensors, rows, wanted })
    }

    /// Whether it asks for the output at that position of the configuration.
    pub fn wants(&self, output: usize) -> bool {
        self.wanted[output]
    }

    /// The extent of its batch axis; 1 where the model has none.
    pub fn rows(&self) -> i64 {
        self.rows
    }

    /// Whether both can be concatenated along the batch axis.
    fn fits(&self, other: &Self) -> bool {
        self.tensors.iter().zip(&other.tensors).all(|pair| match pair {
            (Some(one), Some(two)) => one.shape.get(1..) == two.shape.get(1..),
            (None, None) => true,
            _ => false,
        })
    }
}

/// The extent of the batch axis, on which all inputs have to agree.
fn rows(model: &TorchModel, tensors: &[Option<View<'_>>]) -> Result<i64> {
    let mut first: Option<(i64, &str)> = None;
    for (spec, view) in model.inputs.iter().zip(tensors) {
        let Some(view) = view else { continue };
        let Some(&rows) = view.shape.first() else {
            return Err(Error::invalid_arg(format!("input {} has no batch axis", spec.name)));
        };
        match first {
            None => first = Some((rows, &spec.name)),
            Some((expected, _)) if expected == rows => {}
            Some((expected, name)) => {
                return Err(Error::invalid_arg(format!(
                    "input {} has batch size {rows}, but input {name} has {expected}",
                    spec.name
                )));
            }
        }
    }
    Ok(first.map_or(1, |(rows, _)| rows))
}

/// The indices of samples that can go through `forward()` together.
pub fn groups(samples: &[(usize, Sample<'_>)], batched: bool) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, (_, sample)) in samples.iter().enumerate() {
        match groups.iter_mut().find(|group| batched && samples[group[0]].1.fits(sample)) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

/// The arguments of one call, on memory lent by the requests for `'a`.
pub struct Bound<'a> {
    tensors: Vec<Option<Lent<'a>>>,
    rows: i64,
}

impl<'a> Bound<'a> {
    /// Concatenates the inputs of several samples; a single one is used in place unless `copy` asks for memory that the
    /// model may write to and keep.
    pub fn new(
        model: &TorchModel,
        network: &Network,
        samples: &[&'a Sample<'a>],
        copy: bool,
    ) -> Result<Self> {
        let tensors = (0..model.inputs.len()).map(|index| {
            let spec = &model.inputs[index];
            let views = samples.iter().filter_map(|sample| sample.tensors[index].as_ref());
            let lent: Vec<_> = views
                .map(|view| view.tensor(spec.kind, network.device()))
                .collect::<Result<_>>()
                .map_err(|error| error.context(format!("input {}", spec.name)))?;
            let joined = match lent.len() {
                0 => return Ok(None),
                1 if !copy || lent.iter().all(|tensor| !tensor.is_lent()) => lent.into_iter().next(),
                _ => {
                    let parts: Vec<&Tensor> = lent.iter().map(Lent::tensor).collect();
                    Some(Lent::own(Tensor::f_cat(&parts, 0).map_err(torch_error)?))
                }
            };
            joined.map(|tensor| network.prepare(tensor)).transpose()
        });
        Ok(Self {
            tensors: tensors.collect::<Result<_>>()?,
            rows: samples.iter().map(|sample| sample.rows).sum(),
        })
    }

    /// The values to call `forward()` with.
    fn values(&self, model: &TorchModel) -> Result<Vec<Value>, TchError> {
        match &model.arguments {
            Arguments::Positional(slots) => {
                let tensors = slots.iter().map(|slot| slot.and_then(|index| self.tensors[index].as_ref()));
                tensors
                    .map(|tensor| tensor.map_or_else(Value::none, |tensor| Value::tensor(tensor.tensor())))
                    .collect()
            }
            Arguments::Dictionary => {
                let named = model.inputs.iter().zip(&self.tensors);
                let present =
                    named.filter_map(|(spec, tensor)| Some((spec.name.as_str(), tensor.as_ref()?.tensor())));
                Value::dictionary(present).map(|dictionary| vec![dictionary])
            }
        }
    }

    /// Calls `forward()`. Also tells whether it wrote to an argument.
    pub fn call(self, model: &TorchModel, network: &Network) -> Result<(Computed<'a>, bool)> {
        // Every write to a tensor, also through a view, counts its version up.
        let versions = |tensors: &[Option<Lent<'_>>]| -> Result<Vec<i64>> {
            tensors
                .iter()
                .flatten()
                .map(|tensor| tensor.tensor().f_internal_version().map_err(torch_error))
                .collect()
        };
        let before = versions(&self.tensors)?;
        let trace = |text: &str| log!(Verbose, "model {}: {text}", model.name);
        let returned = network.forward(&self.values(model).map_err(torch_error)?, trace)?;
        let written = versions(&self.tensors)? != before;
        Ok((Computed::new(returned, self.rows, self.tensors), written))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{model, noise, write_module};
    use crate::view::Memory;
    use std::borrow::Cow;
    use std::path::Path;

    const CONFIG: &str = r#"{"max_batch_size": 8,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "OUTPUT__0", "data_type": "TYPE_FP32", "dims": [-1]}]}"#;

    fn sample<'a>(bytes: &'a [u8], shape: &'a [i64]) -> Sample<'a> {
        Sample {
            tensors: vec![Some(View { memory: Memory::Host(Cow::Borrowed(bytes)), shape })],
            rows: shape[0],
            wanted: vec![true],
        }
    }

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn module(folder: &Path, forward: &str) -> (TorchModel, Network) {
        write_module(folder, forward, &[]);
        let model = model(folder, CONFIG);
        let network = Network::load(&folder.join("model.pt"), &model.settings, Device::Cpu).unwrap();
        (model, network)
    }

    fn result(model: &TorchModel, computed: &Computed<'_>) -> Vec<f32> {
        computed.tensor(&model.outputs[0]).unwrap().reshape([-1]).try_into().unwrap()
    }

    #[test]
    fn samples_of_one_shape_go_together_and_others_apart() {
        let data = bytes(&noise(12));
        let shapes: [&[i64]; 4] = [&[1, 2], &[2, 3], &[3, 2], &[1, 3]];
        let samples: Vec<_> = shapes
            .iter()
            .map(|shape| sample(&data[..(shape[0] * shape[1] * 4) as usize], shape))
            .enumerate()
            .collect();
        assert_eq!(groups(&samples, true), [vec![0, 2], vec![1, 3]]);
        assert_eq!(groups(&samples, false), [[0], [1], [2], [3]]);
    }

    #[test]
    fn a_batch_is_concatenated_and_a_single_sample_stays_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let (model, network) = module(folder.path(), "x: Tensor) -> Tensor:\n    return torch.mul(x, 2)");
        let (one, two) = (bytes(&[1.0, 2.0]), bytes(&[3.0, 4.0, 5.0, 6.0]));
        let (one, two) = (sample(&one, &[1, 2]), sample(&two, &[2, 2]));
        let bound = Bound::new(&model, &network, &[&one, &two], false).unwrap();
        let (computed, written) = bound.call(&model, &network).unwrap();
        assert_eq!((result(&model, &computed), written), (vec![2.0, 4.0, 6.0, 8.0, 10.0, 12.0], false));
        assert_eq!(computed.rows(), 3);

        let address = |bound: &Bound<'_>| bound.tensors[0].as_ref().unwrap().tensor().data_ptr() as usize;
        let Memory::Host(bytes) = &one.tensors[0].as_ref().unwrap().memory else { unreachable!() };
        let bytes = bytes.as_ptr() as usize;
        assert_eq!(address(&Bound::new(&model, &network, &[&one], false).unwrap()), bytes);
        assert_ne!(address(&Bound::new(&model, &network, &[&one], true).unwrap()), bytes);
    }

    #[test]
    fn a_write_to_the_argument_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        for (forward, writes) in [
            ("x: Tensor) -> Tensor:\n    return torch.add_(x, 1)", true),
            ("x: Tensor) -> Tensor:\n    _0 = torch.add_(torch.select(x, 0, 0), 1)\n    return x", true),
            ("x: Tensor) -> Tensor:\n    return torch.add_(torch.add(x, 0), 1)", false),
        ] {
            let (model, network) = module(folder.path(), forward);
            let _no_grad = tch::no_grad_guard();
            let data = bytes(&[1.0, 2.0]);
            let sample = sample(&data, &[1, 2]);
            let bound = Bound::new(&model, &network, &[&sample], true).unwrap();
            assert_eq!(bound.call(&model, &network).unwrap().1, writes, "{forward}");
            assert_eq!(data, bytes(&[1.0, 2.0]), "{forward}");
        }
    }

    #[test]
    fn a_write_that_depends_on_the_data_spares_the_request() {
        let folder = tempfile::tempdir().unwrap();
        let forward = "x: Tensor) -> Tensor:\n    if bool(torch.gt(torch.max(x), 10)):\n      \
            _0 = torch.clamp_(x, 0., 1.)\n    else:\n      pass\n    return torch.mul(x, 2)";
        let (model, network) = module(folder.path(), forward);
        for (values, expected) in [([1.0, 2.0], [2.0, 4.0]), ([1.0, 20.0], [2.0, 2.0])] {
            let data = bytes(&values);
            let sample = sample(&data, &[1, 2]);
            let bound = Bound::new(&model, &network, &[&sample], model.copies_input).unwrap();
            assert_eq!(result(&model, &bound.call(&model, &network).unwrap().0), expected);
            assert_eq!(data, bytes(&values));
        }
    }

    #[test]
    fn a_failed_call_keeps_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let (model, network) =
            module(folder.path(), "x: Tensor) -> Tensor:\n    return torch.matmul(x, torch.zeros([7, 7]))");
        let data = vec![0_u8; 16 << 20];
        let sample = sample(&data, &[1, 4 << 20]);
        let resident = || {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let fail = || {
            assert!(Bound::new(&model, &network, &[&sample], true).unwrap().call(&model, &network).is_err())
        };
        fail();
        let before = resident();
        (0..50).for_each(|_| fail());
        let grown = resident().saturating_sub(before);
        // Other tests run meanwhile, so this is no exact count.
        assert!(grown < 400 << 20, "50 failed calls of 16 MiB each kept {} MiB", grown >> 20);
    }

    #[test]
    fn optional_and_dictionary_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let data = bytes(&[1.0, 2.0]);
        let view = || Some(View { memory: Memory::Host(Cow::Borrowed(&data[..])), shape: &[1, 2] });
        let two = |second| Sample { tensors: vec![view(), second], rows: 1, wanted: vec![true] };
        let config = |optional| {
            format!(
                r#"{{"max_batch_size": 8, "input": [{{"name": "x", "data_type": "TYPE_FP32", "dims": [2]}},
                {{"name": "y", "data_type": "TYPE_FP32", "dims": [2], "optional": {optional}}}],
                "output": [{{"name": "sum", "data_type": "TYPE_FP32", "dims": [2]}}]}}"#
            )
        };
        let run = |optional: bool, samples: &Sample<'_>| {
            let model = model(folder.path(), &config(optional));
            let network =
                Network::load(&folder.path().join("model.pt"), &model.settings, Device::Cpu).unwrap();
            let bound = Bound::new(&model, &network, &[samples], false).unwrap();
            result(&model, &bound.call(&model, &network).unwrap().0)
        };
        let optional = "x: Tensor,\n    y: Optional[Tensor]) -> Tensor:\n    if torch.__is__(y, None):\n      \
            z = x\n    else:\n      y0 = unchecked_cast(Tensor, y)\n      z = torch.add(x, y0)\n    return z";
        write_module(folder.path(), optional, &[]);
        assert_eq!(run(true, &two(None)), [1.0, 2.0]);
        assert_eq!(run(true, &two(view())), [2.0, 4.0]);
        let dictionary = "d: Dict[str, Tensor]) -> Dict[str, Tensor]:\n    return {\"sum\": torch.add(d[\"x\"], d[\"y\"])}";
        write_module(folder.path(), dictionary, &[]);
        assert_eq!(run(false, &two(view())), [2.0, 4.0]);
    }
}
