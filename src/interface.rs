//! The model's tensors: what its configuration declares, what is accepted, and what a request's shapes mean.

use serde_json::{Value, json};
use triton_backend_api::{DataType, Error, ModelConfig, Result, TensorConfig};

use crate::config::PipelineConfig;
use crate::pipeline::{Results, Wanted};
use crate::volume::{LabelType, Shape3, VoxelType};

/// The input's name.
pub const INPUT: &str = "INPUT0";
/// The outputs' names.
pub const OUTPUTS: Results<&str> = Results {
    mask: "MASK",
    contour: "CONTOUR",
    mask_native: "MASK_NATIVE",
    contour_native: "CONTOUR_NATIVE",
};

/// The declared tensors, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Element type of the input.
    pub voxel_type: VoxelType,
    /// Element types of the outputs; none where one is not declared.
    pub outputs: Results<Option<LabelType>>,
}

impl Interface {
    /// Reads and checks what a configuration declares. Every refusal names tensor, found and accepted.
    pub fn new(config: &ModelConfig, pipeline: &PipelineConfig) -> Result<Self> {
        let batch_axis = config.max_batch_size() > 0;
        let (inputs, outputs) = (config.inputs()?, config.outputs()?);
        let [input] = inputs.as_slice() else {
            let names: Vec<_> = inputs.iter().map(|input| &input.name).collect();
            return Err(Error::invalid_arg(format!("inputs {names:?}; accepted is exactly one, {INPUT}")));
        };
        refuse_options(config)?;
        let voxel_type = check_input(input, batch_axis)?;
        if outputs.is_empty() {
            return Err(Error::invalid_arg(format!("no outputs; accepted are {}", names())));
        }
        let mut declared = Results::default();
        for output in &outputs {
            let label_type = check_output(output, input, batch_axis, pipeline)?;
            *named(&mut declared, &output.name)? = Some(label_type);
        }
        Ok(Self { voxel_type, outputs: declared })
    }

    /// Whether any output lies on the grid of the input.
    pub fn has_native(&self) -> bool {
        self.outputs.mask_native.is_some() || self.outputs.contour_native.is_some()
    }

    /// Refuses an answer with more classes than the label map's type can name. How many classes a network has is not
    /// known before it answers.
    pub fn check_classes(&self, classes: usize) -> Result<()> {
        let masks = [(OUTPUTS.mask, self.outputs.mask), (OUTPUTS.mask_native, self.outputs.mask_native)];
        match masks.into_iter().find(|(_, declared)| *declared == Some(LabelType::Bool)) {
            Some((name, _)) if classes > 2 => Err(Error::internal(format!(
                "output '{name}' has data type TYPE_BOOL, and the network answers with {classes} classes; accepted are \
                 2 classes, or another data type"
            ))),
            _ => Ok(()),
        }
    }

    /// Which results the names of a request ask for; no names ask for all that is declared.
    pub fn wanted(&self, names: &[String]) -> Result<Wanted> {
        let declared = self.outputs.map(|label_type| label_type.is_some());
        if names.is_empty() {
            return Ok(declared);
        }
        let mut wanted = Wanted::default();
        for name in names {
            let known = OUTPUTS.zip(declared).into_array().contains(&(name, true));
            if !known {
                return Err(Error::invalid_arg(format!("output '{name}' is not declared by this model")));
            }
            *named(&mut wanted, name)? = true;
        }
        Ok(wanted)
    }
}

/// What belongs to the output of this name.
fn named<'r, T>(results: &'r mut Results<T>, name: &str) -> Result<&'r mut T> {
    let Results { mask, contour, mask_native, contour_native } = results;
    match name {
        name if name == OUTPUTS.mask => Ok(mask),
        name if name == OUTPUTS.contour => Ok(contour),
        name if name == OUTPUTS.mask_native => Ok(mask_native),
        name if name == OUTPUTS.contour_native => Ok(contour_native),
        _ => Err(Error::invalid_arg(format!("output '{name}'; accepted are {}", names()))),
    }
}

fn names() -> String {
    OUTPUTS.into_array().join(", ")
}

/// The volumes of a request's input: how many there are, and the size of each. `shape` is [batch, H, W, D].
pub fn volumes(shape: &[i64]) -> Result<(usize, Shape3)> {
    let &[count, h, w, d] = shape else { return Err(wrong_shape(shape)) };
    if count < 1 {
        return Err(wrong_shape(shape));
    }
    let size = Shape3::new([h, w, d]).map_err(|e| e.context(INPUT))?;
    Ok((count as usize, size))
}

fn wrong_shape(shape: &[i64]) -> Error {
    let accepted = "[batch, H, W, D], each 1 or more";
    Error::invalid_arg(format!("{INPUT} has shape {shape:?}; accepted is {accepted}"))
}

/// The shape of an output for `count` volumes of this size.
pub fn output_shape(count: usize, size: Shape3) -> [i64; 5] {
    let [h, w, d] = size.dims().map(|dim| dim as i64);
    [count as i64, 1, h, w, d]
}

/// Triton's name of an output's element type.
pub fn data_type(label_type: LabelType) -> DataType {
    match label_type {
        LabelType::Fp32 => DataType::Fp32,
        LabelType::Fp16 => DataType::Fp16,
        LabelType::Uint8 => DataType::Uint8,
        LabelType::Int32 => DataType::Int32,
        LabelType::Int64 => DataType::Int64,
        LabelType::Bool => DataType::Bool,
    }
}

/// Refuses what would change the shapes that arrive here, or whether an input arrives at all.
fn refuse_options(config: &ModelConfig) -> Result<()> {
    let is_set = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(list) => !list.is_empty(),
        _ => true,
    };
    for list in ["input", "output"] {
        for tensor in config.json().get(list).and_then(Value::as_array).into_iter().flatten() {
            for option in ["reshape", "allow_ragged_batch", "optional", "is_shape_tensor"] {
                if tensor.get(option).is_some_and(is_set) {
                    let name = tensor.get("name").and_then(Value::as_str).unwrap_or("");
                    return Err(Error::invalid_arg(format!(
                        "{list} '{name}' has {option}; accepted is none"
                    )));
                }
            }
        }
    }
    for option in ["batch_input", "batch_output"] {
        if config.json().get(option).is_some_and(is_set) {
            return Err(Error::invalid_arg(format!("the configuration has {option}; accepted is none")));
        }
    }
    Ok(())
}

fn check_input(input: &TensorConfig, batch_axis: bool) -> Result<VoxelType> {
    let TensorConfig { name, data_type, dims, .. } = input;
    if name != INPUT {
        return Err(Error::invalid_arg(format!("input '{name}'; accepted is exactly one, {INPUT}")));
    }
    let rank = if batch_axis { 3 } else { 4 };
    if dims.len() != rank {
        let accepted = if batch_axis { "[H, W, D]" } else { "[batch, H, W, D] (max_batch_size is 0)" };
        return Err(Error::invalid_arg(format!(
            "{INPUT} has dims {dims:?}; accepted are {accepted}, -1 for any"
        )));
    }
    match data_type {
        DataType::Fp32 => Ok(VoxelType::Fp32),
        DataType::Int16 => Ok(VoxelType::Int16),
        other => Err(Error::invalid_arg(format!(
            "{INPUT} has data type {}; accepted are TYPE_FP32 and TYPE_INT16",
            other.config_name()
        ))),
    }
}

fn check_output(
    output: &TensorConfig,
    input: &TensorConfig,
    batch_axis: bool,
    pipeline: &PipelineConfig,
) -> Result<LabelType> {
    let TensorConfig { name, data_type, dims, .. } = output;
    let is_native = *named(&mut NATIVE.clone(), name)?;
    let (wanted, by) = match is_native {
        false => (output_dims(batch_axis, pipeline), "spatial_size"),
        true => (native_dims(batch_axis, input), "INPUT0's dims"),
    };
    // A batch axis that is part of the dims may also be fixed: the server then holds requests to it.
    let free = usize::from(!batch_axis);
    let fits = dims.len() == wanted.len()
        && dims.iter().zip(&wanted).skip(free).all(|(dim, wanted)| *dim == -1 || dim == wanted);
    if !fits {
        return Err(Error::invalid_arg(format!(
            "output '{name}' has dims {dims:?}; accepted are {wanted:?} (by {by}), -1 for any"
        )));
    }
    let label_type = match data_type {
        DataType::Fp32 => LabelType::Fp32,
        DataType::Fp16 => LabelType::Fp16,
        DataType::Uint8 => LabelType::Uint8,
        DataType::Int32 => LabelType::Int32,
        DataType::Int64 => LabelType::Int64,
        DataType::Bool => LabelType::Bool,
        other => {
            return Err(Error::invalid_arg(format!(
                "output '{name}' has data type {}; accepted are TYPE_FP32, TYPE_FP16, TYPE_UINT8, TYPE_INT32, \
                 TYPE_INT64 and TYPE_BOOL",
                other.config_name()
            )));
        }
    };
    let labels = pipeline.keep.applied_labels.as_deref().unwrap_or_default();
    let is_mask = [OUTPUTS.mask, OUTPUTS.mask_native].contains(&name.as_str());
    let too_high = labels.iter().find(|label| **label > 1).filter(|_| is_mask);
    if let (LabelType::Bool, Some(label)) = (label_type, too_high) {
        return Err(Error::invalid_arg(format!(
            "output '{name}' has data type TYPE_BOOL, and applied_labels names label {label}, which it cannot hold; \
             accepted are the other types"
        )));
    }
    Ok(label_type)
}

/// Which outputs lie on the grid of the input.
const NATIVE: Results<bool> =
    Results { mask: false, contour: false, mask_native: true, contour_native: true };

fn native_dims(batch_axis: bool, input: &TensorConfig) -> Vec<i64> {
    let mut dims = if batch_axis { vec![1] } else { vec![-1, 1] };
    dims.extend(&input.dims[usize::from(!batch_axis)..]);
    dims
}

fn output_dims(batch_axis: bool, pipeline: &PipelineConfig) -> Vec<i64> {
    let size = pipeline.resize.spatial_size.map(|size| size.unwrap_or(-1));
    let mut dims = if batch_axis { vec![1] } else { vec![-1, 1] };
    dims.extend(size);
    dims
}

/// Adds the tensors that a configuration leaves out; `None` where it leaves out nothing.
///
/// A configuration without any tensor gets max_batch_size 1 where it has none.
pub fn auto_complete(config: &ModelConfig) -> Result<Option<Value>> {
    let (inputs, outputs) = (config.inputs()?, config.outputs()?);
    if !inputs.is_empty() && !outputs.is_empty() {
        return Ok(None);
    }
    let pipeline = PipelineConfig::from_parameters(&config.parameters())?;
    let mut completed = config.json().clone();
    let batch_axis = config.max_batch_size() > 0 || (inputs.is_empty() && outputs.is_empty());
    if batch_axis && config.max_batch_size() == 0 {
        completed["max_batch_size"] = json!(1);
    }
    if inputs.is_empty() {
        let dims = vec![-1; if batch_axis { 3 } else { 4 }];
        completed["input"] = json!([{ "name": INPUT, "data_type": "TYPE_FP32", "dims": dims }]);
    }
    if outputs.is_empty() {
        let dims = output_dims(batch_axis, &pipeline);
        let output = |name| json!({ "name": name, "data_type": "TYPE_FP32", "dims": dims });
        completed["output"] = json!([output(OUTPUTS.mask), output(OUTPUTS.contour)]);
    }
    Ok(Some(completed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn config(json: Value) -> ModelConfig {
        ModelConfig::from_json(&json.to_string()).unwrap()
    }

    fn declared(batch: i64, input: Value, outputs: Value) -> Result<Interface> {
        let pipeline = PipelineConfig::from_parameters(&BTreeMap::new()).unwrap();
        Interface::new(
            &config(json!({"max_batch_size": batch, "input": input, "output": outputs})),
            &pipeline,
        )
    }

    fn tensor(name: &str, data_type: &str, dims: &[i64]) -> Value {
        json!({"name": name, "data_type": data_type, "dims": dims})
    }

    const DIMS: [i64; 4] = [1, 224, 224, 224];

    #[test]
    fn both_ways_to_write_the_batch_axis_are_accepted() {
        let with = declared(
            1,
            json!([tensor("INPUT0", "TYPE_FP32", &[-1, -1, -1])]),
            json!([tensor("MASK", "TYPE_INT64", &DIMS), tensor("CONTOUR", "TYPE_UINT8", &[-1, -1, -1, -1])]),
        );
        let outputs =
            Results { mask: Some(LabelType::Int64), contour: Some(LabelType::Uint8), ..Default::default() };
        assert_eq!(with, Ok(Interface { voxel_type: VoxelType::Fp32, outputs }));
        let without = declared(
            0,
            json!([tensor("INPUT0", "TYPE_INT16", &[-1, -1, -1, -1])]),
            json!([tensor("CONTOUR", "TYPE_BOOL", &[-1, 1, 224, 224, 224])]),
        );
        let outputs = Results { contour: Some(LabelType::Bool), ..Default::default() };
        let expected = Interface { voxel_type: VoxelType::Int16, outputs };
        assert_eq!(without, Ok(expected));
        assert!(expected.wanted(&["MASK".into()]).is_err());
        assert_eq!(expected.wanted(&[]), Ok(Wanted { contour: true, ..Default::default() }));
    }

    #[test]
    fn what_is_not_accepted_is_named() {
        let input = || json!([tensor("INPUT0", "TYPE_FP32", &[-1, -1, -1])]);
        let mask = || json!([tensor("MASK", "TYPE_FP32", &DIMS)]);
        for (inputs, outputs, expected) in [
            (json!([]), mask(), "exactly one, INPUT0"),
            (json!([tensor("IN0", "TYPE_FP32", &[-1, -1, -1])]), mask(), "input 'IN0'"),
            (
                json!([tensor("INPUT0", "TYPE_FP64", &[-1, -1, -1])]),
                mask(),
                "TYPE_FP64; accepted are TYPE_FP32",
            ),
            (json!([tensor("INPUT0", "TYPE_FP32", &[-1, -1, -1, -1])]), mask(), "dims [-1, -1, -1, -1]"),
            (input(), json!([]), "no outputs"),
            (input(), json!([tensor("LABEL", "TYPE_FP32", &DIMS)]), "output 'LABEL'"),
            (input(), json!([tensor("MASK", "TYPE_FP64", &DIMS)]), "'MASK' has data type TYPE_FP64"),
            (input(), json!([tensor("MASK", "TYPE_FP32", &DIMS[1..])]), "[1, 224, 224, 224]"),
            (input(), json!([tensor("MASK", "TYPE_FP32", &[1, 96, 96, 96])]), "[1, 224, 224, 224]"),
        ] {
            let message = declared(1, inputs, outputs).unwrap_err().message().to_owned();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn bool_refuses_labels_it_cannot_hold() {
        let parameters = BTreeMap::from([("applied_labels".into(), "1,2".into())]);
        let pipeline = PipelineConfig::from_parameters(&parameters).unwrap();
        let output = tensor("MASK", "TYPE_BOOL", &DIMS);
        let input = tensor("INPUT0", "TYPE_FP32", &[-1, -1, -1]);
        let config = config(json!({"max_batch_size": 1, "input": [input], "output": [output]}));
        assert!(Interface::new(&config, &pipeline).unwrap_err().message().contains("label 2"));
    }

    #[test]
    fn a_mask_of_bool_refuses_a_network_with_more_classes_and_a_contour_takes_any() {
        let types = |mask, contour, mask_native| Interface {
            voxel_type: VoxelType::Fp32,
            outputs: Results { mask, contour, mask_native, contour_native: contour }.map(Some),
        };
        use LabelType::{Bool, Uint8};
        assert_eq!(types(Bool, Bool, Bool).check_classes(2), Ok(()));
        assert_eq!(types(Uint8, Bool, Uint8).check_classes(3), Ok(()));
        for (mask, native, named) in [(Bool, Uint8, "'MASK'"), (Uint8, Bool, "'MASK_NATIVE'")] {
            let message = types(mask, Uint8, native).check_classes(3).unwrap_err();
            assert!(
                message.message().contains("3 classes") && message.message().contains(named),
                "{message}"
            );
        }
    }

    #[test]
    fn native_outputs_have_the_dims_of_the_input() {
        let outputs = |dims: &[i64]| {
            json!([tensor("MASK_NATIVE", "TYPE_UINT8", dims), tensor("CONTOUR_NATIVE", "TYPE_UINT8", dims)])
        };
        let input = |dims: &[i64]| json!([tensor("INPUT0", "TYPE_INT16", dims)]);
        let native = declared(1, input(&[-1, -1, 9]), outputs(&[1, -1, -1, 9])).unwrap();
        let wanted = native.wanted(&["CONTOUR_NATIVE".into()]);
        assert_eq!(wanted, Ok(Wanted { contour_native: true, ..Default::default() }));
        assert!(native.wanted(&["MASK".into()]).is_err(), "it is not declared");
        assert!(declared(0, input(&[-1, -1, -1, -1]), outputs(&[-1, 1, -1, -1, -1])).is_ok());
        let message = declared(1, input(&[-1, -1, 9]), outputs(&[1, -1, -1, 8])).unwrap_err();
        assert!(message.message().contains("[1, -1, -1, 9] (by INPUT0's dims)"), "{message}");
    }

    #[test]
    fn options_that_change_what_arrives_are_refused() {
        for (option, value) in [
            ("reshape", json!({"shape": [1, 2]})),
            ("allow_ragged_batch", json!(true)),
            ("optional", json!(true)),
        ] {
            let mut input = tensor("INPUT0", "TYPE_FP32", &[-1, -1, -1]);
            input[option] = value;
            let message =
                declared(1, json!([input]), json!([tensor("MASK", "TYPE_FP32", &DIMS)])).unwrap_err();
            assert!(message.message().contains(option), "{message}");
        }
        let mut input = tensor("INPUT0", "TYPE_FP32", &[-1, -1, -1]);
        input["allow_ragged_batch"] = json!(false);
        assert!(declared(1, json!([input]), json!([tensor("MASK", "TYPE_FP32", &DIMS)])).is_ok());
    }

    #[test]
    fn completed_configurations_are_accepted_ones() {
        for (given, batch) in [
            (json!({"max_batch_size": 0}), 1),
            (json!({"max_batch_size": 4}), 4),
            (json!({"max_batch_size": 0, "input": [tensor("INPUT0", "TYPE_INT16", &[-1, -1, -1, -1])]}), 0),
            (json!({"max_batch_size": 0, "parameters": {"spatial_size": {"string_value": "-1,8,9"}}}), 1),
        ] {
            let completed = config(auto_complete(&config(given)).unwrap().unwrap());
            assert_eq!(completed.max_batch_size(), batch);
            let pipeline = PipelineConfig::from_parameters(&completed.parameters()).unwrap();
            let declared = Interface::new(&completed, &pipeline).unwrap();
            assert_eq!(declared.wanted(&[]), Ok(Wanted { mask: true, contour: true, ..Default::default() }));
            assert_eq!(auto_complete(&completed), Ok(None), "a complete configuration is left alone");
        }
    }

    #[test]
    fn shapes_of_requests() {
        assert_eq!(volumes(&[2, 3, 4, 5]), Ok((2, Shape3::new([3, 4, 5]).unwrap())));
        for wrong in [&[][..], &[3, 4, 5], &[0, 3, 4, 5], &[1, 3, 0, 5], &[1, 1, 3, 4, 5], &[-1, 3, 4, 5]] {
            assert!(volumes(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(output_shape(2, Shape3::new([3, 4, 5]).unwrap()), [2, 1, 3, 4, 5]);
    }
}
