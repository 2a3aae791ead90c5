//! A model's configuration: typed where it matters, whole as JSON.

use std::collections::BTreeMap;

use serde_json::Value;

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

impl ModelConfig {
    /// Reads the JSON form, version 1.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text)
            .map(|json| Self { json })
            .map_err(|e| Error::internal(format!("the server's model configuration is no JSON: {e}")))
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
    fn what_is_missing_is_empty_and_what_is_wrong_is_named() {
        let config = ModelConfig::from_json("{}").unwrap();
        assert_eq!(config.max_batch_size(), 0);
        assert_eq!(config.inputs(), Ok(vec![]));
        assert!(config.parameters().is_empty() && !config.is_decoupled());
        assert!(ModelConfig::from_json("{").is_err());
        let config =
            ModelConfig::from_json(r#"{"input": [{"name": "A", "data_type": "TYPE_X", "dims": []}]}"#);
        assert!(config.unwrap().inputs().unwrap_err().message().contains("input 'A': data type 'TYPE_X'"));
    }
}
