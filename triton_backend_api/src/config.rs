//! A model's configuration: typed where it matters, whole as JSON.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde_json::{Map, Value};

use crate::data_type::DataType;
use crate::error::{Error, Result};

/// `config.pbtxt` as the server sees it, what it completed included.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    json: Value,
}

/// An input or output that a configuration declares.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorConfig {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub data_type: DataType,
    /// Its shape without the batch axis; -1 is any.
    pub dims: Vec<i64>,
    /// Whether requests may leave it out (inputs).
    pub optional: bool,
}

impl From<Value> for ModelConfig {
    fn from(json: Value) -> Self {
        Self { json }
    }
}

impl ModelConfig {
    /// Reads the JSON form, version 1, which is an object.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text)
            .map(|object: Map<String, Value>| Self { json: object.into() })
            .map_err(|e| Error::internal(format!("the server's model configuration is no JSON object: {e}")))
    }

    /// The whole of it; nothing the server said is lost.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// `max_batch_size`: 0 where the model's shapes have no batch axis of the server's.
    pub fn max_batch_size(&self) -> u64 {
        self.json.get("max_batch_size").and_then(integer).and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
    }

    /// `model_transaction_policy.decoupled`: whether the model may send any number of responses to a request.
    pub fn is_decoupled(&self) -> bool {
        let policy = self.json.get("model_transaction_policy");
        policy.and_then(|policy| policy.get("decoupled")).and_then(Value::as_bool).unwrap_or(false)
    }

    /// `default_model_filename`, where it is set.
    pub fn default_model_filename(&self) -> Option<&str> {
        self.json.get("default_model_filename").and_then(Value::as_str).filter(|name| !name.is_empty())
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> Result<Vec<TensorConfig>> {
        self.tensors("input")
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> Result<Vec<TensorConfig>> {
        self.tensors("output")
    }

    fn tensors(&self, key: &str) -> Result<Vec<TensorConfig>> {
        let list = self.json.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        list.iter().map(|entry| tensor(key, entry)).collect()
    }

    /// `parameters`, key to string value.
    pub fn parameters(&self) -> BTreeMap<String, String> {
        let Some(map) = self.json.get("parameters").and_then(Value::as_object) else {
            return BTreeMap::new();
        };
        map.iter()
            .map(|(key, value)| {
                (key.clone(), value.get("string_value").and_then(Value::as_str).unwrap_or("").to_owned())
            })
            .collect()
    }

    /// A parameter as a number, a truth or whatever else can be read from text; `None` where it is not set.
    ///
    /// Errors: `InvalidArg`, naming key and value, where it cannot be read. `true` and `false` are the truths.
    pub fn parameter<T: FromStr>(&self, key: &str) -> Result<Option<T>>
    where
        T::Err: std::fmt::Display,
    {
        let Some(value) = self.json.get("parameters").and_then(|map| map.get(key)) else { return Ok(None) };
        let value = value.get("string_value").and_then(Value::as_str).unwrap_or("");
        value.trim().parse().map(Some).map_err(|e| {
            let wanted = std::any::type_name::<T>();
            Error::invalid_arg(format!("parameter '{key}' is '{value}', which is no {wanted}: {e}"))
        })
    }

    /// `backend`, the name of the backend.
    pub fn backend(&self) -> &str {
        self.json.get("backend").and_then(Value::as_str).unwrap_or("")
    }

    /// Whether the server gathers requests into batches: `dynamic_batching` is set.
    pub fn has_dynamic_batching(&self) -> bool {
        self.json.get("dynamic_batching").is_some_and(|batching| !batching.is_null())
    }

    /// The instance groups, in order, with what the server completed.
    pub fn instance_groups(&self) -> Result<Vec<InstanceGroupConfig>> {
        let list =
            self.json.get("instance_group").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        list.iter().map(instance_group).collect()
    }
}

/// An instance group that a configuration declares.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceGroupConfig {
    /// Its name; the server completes it.
    pub name: String,
    /// Where its instances run, as written: `KIND_CPU`, `KIND_GPU`, `KIND_MODEL`, `KIND_AUTO`, or what this crate does not know.
    pub kind: String,
    /// How many instances on each device.
    pub count: i64,
    /// The GPUs.
    pub gpus: Vec<i64>,
    /// All of it, what has no field here included.
    pub json: Value,
}

fn instance_group(entry: &Value) -> Result<InstanceGroupConfig> {
    let text = |key| entry.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    let name = text("name");
    let gpus = entry.get("gpus").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let number = |value: &Value, what: &str| {
        let wrong =
            || Error::invalid_arg(format!("instance group '{name}': {what} is {value}, which is no integer"));
        integer(value).ok_or_else(wrong)
    };
    let count = entry.get("count").map_or(Ok(1), |count| number(count, "count"))?;
    let gpus = gpus.iter().map(|gpu| number(gpu, "a GPU")).collect::<Result<_>>()?;
    Ok(InstanceGroupConfig { name: name.clone(), kind: text("kind"), count, gpus, json: entry.clone() })
}

/// A value as text: a string as it is, anything else as its JSON.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn tensor(key: &str, entry: &Value) -> Result<TensorConfig> {
    let name = entry.get("name").and_then(Value::as_str).unwrap_or("").to_owned();
    let wrong = |what: &str| Error::invalid_arg(format!("{key} '{name}': {what}"));
    let data_type = DataType::from_config(entry.get("data_type").and_then(Value::as_str).unwrap_or(""))
        .map_err(|e| e.context(format!("{key} '{name}'")))?;
    let dims = entry.get("dims").and_then(Value::as_array).ok_or_else(|| wrong("no dims"))?;
    let dims = dims
        .iter()
        .map(|dim| integer(dim).ok_or_else(|| wrong(&format!("dimension {dim} is no integer"))))
        .collect::<Result<_>>()?;
    let optional = entry.get("optional").and_then(Value::as_bool).unwrap_or(false);
    Ok(TensorConfig { name, data_type, dims, optional })
}

/// An integer of the JSON form, which writes 64-bit integers as strings in places.
fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_typed_view_reads_both_spellings_of_integers() {
        let config = ModelConfig::from_json(
            r#"{"max_batch_size": "4", "default_model_filename": "",
                "input": [{"name": "A", "data_type": "TYPE_INT16", "dims": ["-1", 3], "optional": true}],
                "output": [{"name": "B", "data_type": "TYPE_STRING", "dims": []}],
                "parameters": {"k": {"string_value": "v"}}, "unknown": {"kept": 1}}"#,
        )
        .unwrap();
        assert_eq!(config.max_batch_size(), 4);
        assert_eq!(config.default_model_filename(), None);
        let input =
            TensorConfig { name: "A".into(), data_type: DataType::Int16, dims: vec![-1, 3], optional: true };
        assert_eq!(config.inputs(), Ok(vec![input]));
        assert_eq!(config.outputs().unwrap()[0].data_type, DataType::Bytes);
        assert_eq!(config.parameters(), BTreeMap::from([("k".into(), "v".into())]));
        assert_eq!(config.json()["unknown"]["kept"], 1);
    }

    #[test]
    fn parameters_are_read_as_what_they_are_to_be_and_an_error_names_them() {
        let json = r#"{"parameters": {"n": {"string_value": " 12 "}, "x": {"string_value": "-1.5e3"},
                "t": {"string_value": "true"}, "bad": {"string_value": "yes"}, "none": {}}}"#;
        let config = ModelConfig::from_json(json).unwrap();
        assert_eq!(config.parameter("n"), Ok(Some(12)));
        assert_eq!(config.parameter("x"), Ok(Some(-1500.0)));
        assert_eq!(config.parameter("t"), Ok(Some(true)));
        assert_eq!(config.parameter::<String>("bad"), Ok(Some("yes".into())));
        assert_eq!(config.parameter::<u8>("absent"), Ok(None));
        let wrong = config.parameter::<bool>("bad").unwrap_err();
        assert_eq!(wrong.code(), crate::ErrorCode::InvalidArg);
        assert!(wrong.message().contains("parameter 'bad' is 'yes', which is no bool"), "{wrong}");
        assert!(config.parameter::<i64>("none").unwrap_err().message().contains("'none' is ''"));
    }

    #[test]
    fn the_scheduling_of_a_model_is_typed_and_what_is_unknown_of_it_is_kept() {
        let json = r#"{"backend": "b", "model_transaction_policy": {"decoupled": true}, "dynamic_batching": {},
            "instance_group": [{"name": "g", "kind": "KIND_GPU", "count": "2", "gpus": [0, "1"], "rate_limiter": {"x": 1}},
                {"kind": "KIND_NEW"}]}"#;
        let config = ModelConfig::from_json(json).unwrap();
        assert_eq!(
            (config.backend(), config.is_decoupled(), config.has_dynamic_batching()),
            ("b", true, true)
        );
        let groups = config.instance_groups().unwrap();
        assert_eq!(
            (groups[0].kind.as_str(), groups[0].count, groups[0].gpus.as_slice()),
            ("KIND_GPU", 2, &[0, 1][..])
        );
        assert_eq!(groups[0].json["rate_limiter"]["x"], 1);
        assert_eq!((groups[1].kind.as_str(), groups[1].count), ("KIND_NEW", 1));
        let wrong = ModelConfig::from_json(r#"{"instance_group": [{"name": "g", "gpus": ["a"]}]}"#).unwrap();
        assert!(wrong.instance_groups().unwrap_err().message().contains("group 'g': a GPU is \"a\""));
        let empty = ModelConfig::from_json("{}").unwrap();
        assert_eq!((empty.backend(), empty.is_decoupled(), empty.has_dynamic_batching()), ("", false, false));
    }

    #[test]
    fn what_is_missing_is_empty_and_what_is_wrong_is_named() {
        let config = ModelConfig::from_json("{}").unwrap();
        assert_eq!(config.max_batch_size(), 0);
        assert_eq!(config.inputs(), Ok(vec![]));
        assert!(config.parameters().is_empty() && !config.is_decoupled());
        for wrong in ["{", "0", "[]", "null"] {
            assert!(
                ModelConfig::from_json(wrong).unwrap_err().message().contains("no JSON object"),
                "{wrong}"
            );
        }
        let config =
            ModelConfig::from_json(r#"{"input": [{"name": "A", "data_type": "TYPE_X", "dims": []}]}"#);
        assert!(config.unwrap().inputs().unwrap_err().message().contains("input 'A': data type 'TYPE_X'"));
    }
}
