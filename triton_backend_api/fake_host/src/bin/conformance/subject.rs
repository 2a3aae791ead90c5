//! The backend under test, its model, and the requests that it gets.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use triton_backend_api::{DataType, ModelConfig};
use triton_fake_host::{BackendSpec, EntryPoints, ModelSpec, TestInput, TestRequest};

use crate::arguments::Arguments;

pub struct Subject {
    pub entry_points: EntryPoints,
    /// The backend API that the server claims.
    pub api: (u32, u32),
    library: PathBuf,
    config: Value,
    inputs: Vec<InputSpec>,
    max_batch_size: u64,
    repository: PathBuf,
    version: u64,
}

struct InputSpec {
    name: String,
    data_type: u32,
    shape: Vec<i64>,
    byte_size: usize,
}

impl Subject {
    pub fn open(arguments: &Arguments) -> Result<Self, String> {
        let path = arguments.config.display();
        let text = std::fs::read_to_string(&arguments.config).map_err(|e| format!("{path}: {e}"))?;
        let mut config: Value = serde_json::from_str(&text).map_err(|e| {
            format!("{path} is no JSON ({e}). A server writes it: GET /v2/models/NAME/config")
        })?;
        let typed = ModelConfig::from_json(&text).map_err(|e| format!("{path}: {e}"))?;
        let max_batch_size = typed.max_batch_size();
        let inputs = typed.inputs().map_err(|e| format!("{path}: {e}"))?;
        let inputs = inputs.into_iter().map(|input| {
            InputSpec::new(input.name, input.data_type, input.dims, max_batch_size, &arguments.shapes)
        });
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        if let Some(unknown) = arguments.shapes.keys().find(|name| !inputs.iter().any(|i| i.name == **name)) {
            return Err(format!("--shape: {path} declares no input '{unknown}'"));
        }
        let folder = arguments.config.parent().map(PathBuf::from).unwrap_or_default();
        let repository = arguments.model.clone().unwrap_or(folder);
        let repository = std::path::absolute(&repository).unwrap_or(repository);
        if config.get("name").and_then(Value::as_str).is_none_or(str::is_empty)
            && let Some(object) = config.as_object_mut()
        {
            object.insert("name".to_owned(), "model".into());
        }
        let entry_points = EntryPoints::open(&arguments.library).map_err(|e| e.message)?;
        let (api, version) = (arguments.api, arguments.version);
        let library = std::path::absolute(&arguments.library).unwrap_or_else(|_| arguments.library.clone());
        Ok(Self { entry_points, api, library, config, inputs, max_batch_size, repository, version })
    }

    /// The backend as the server describes it: named by its folder, in the backends directory.
    pub fn backend(&self) -> BackendSpec {
        let folder = self.library.parent().unwrap_or(Path::new("/"));
        let directory = folder.parent().unwrap_or(Path::new("/"));
        let name = folder.file_name().map_or("backend".into(), |name| name.to_string_lossy());
        let cmdline =
            json!({"backend-directory": directory.to_string_lossy(), "auto-complete-config": "true"});
        let config = json!({"cmdline": cmdline});
        BackendSpec { name: name.into_owned(), location: folder.to_owned(), config, ..BackendSpec::default() }
    }

    /// The model, with one instance on the CPU.
    pub fn model(&self) -> ModelSpec {
        let name = self.config.get("name").and_then(Value::as_str).unwrap_or_default();
        let mut spec = ModelSpec::new(name, self.config.clone());
        spec.repository = self.repository.clone();
        spec.version = self.version;
        spec
    }

    /// Whether the server hands it several requests at once.
    pub fn batches(&self) -> bool {
        self.max_batch_size > 1
    }

    pub fn request(&self, id: &str) -> TestRequest {
        TestRequest::new(self.inputs.iter().map(InputSpec::input)).id(id).traced()
    }

    /// A request whose inputs come in three buffers each.
    pub fn request_in_pieces(&self, id: &str) -> TestRequest {
        let inputs =
            self.inputs.iter().map(|spec| spec.input().split(&[spec.byte_size / 3, spec.byte_size / 2]));
        TestRequest::new(inputs).id(id)
    }
}

impl InputSpec {
    fn new(
        name: String,
        data_type: DataType,
        dims: Vec<i64>,
        max_batch_size: u64,
        shapes: &HashMap<String, Vec<i64>>,
    ) -> Result<Self, String> {
        let shape = shapes.get(&name).cloned().unwrap_or_else(|| {
            let batch = (max_batch_size > 0).then_some(1);
            batch.into_iter().chain(dims.into_iter().map(|dim| dim.max(1))).collect()
        });
        // A string is its length in four bytes, and then its text: zeros are empty ones.
        let counted = if data_type == DataType::Bytes { DataType::Uint32 } else { data_type };
        let byte_size = counted.tensor_byte_size(&shape).map_err(|e| format!("input '{name}': {e}"))?;
        Ok(Self { name, data_type: data_type.to_raw(), shape, byte_size })
    }

    fn input(&self) -> TestInput {
        TestInput::new(&self.name, self.data_type, &self.shape, vec![0; self.byte_size])
    }
}
