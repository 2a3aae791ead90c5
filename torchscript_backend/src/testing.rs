//! TorchScript files made by hand, so that tests need no Python: a zip of code as text and attributes as a pickle.

use std::io::Write;
use std::path::Path;

use triton_backend_api::ModelConfig;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

// Defines the TRITON* symbols that the server provides in production.
use triton_fake_host as _;

use crate::model::TorchModel;

/// Writes `folder/model.pt`: a module with the FP32 parameters `parameters` (name, shape, values) and the method
/// `forward(self, {signature}` up to the end of its body.
pub fn write_module(folder: &Path, forward: &str, parameters: &[(&str, &[i64], Vec<f32>)]) {
    let names: String = parameters.iter().map(|(name, ..)| format!("\"{name}\", ")).collect();
    let declared: String = parameters.iter().map(|(name, ..)| format!("  {name} : Tensor\n")).collect();
    let mut attributes = Vec::new();
    for (index, (name, shape, _)) in parameters.iter().enumerate() {
        text(&mut attributes, name);
        tensor(&mut attributes, index, shape);
    }
    let code = format!("  __parameters__ = [{names}]\n  __buffers__ = []\n{declared}");
    let values: Vec<_> = parameters.iter().map(|(.., values)| values.as_slice()).collect();
    write_archive(folder, &code, forward, &attributes, &values);
}

/// As [`write_module`], with the attribute `name`: an empty list of tensors.
pub fn write_module_with_list(folder: &Path, forward: &str, name: &str) {
    let mut attributes = Vec::new();
    text(&mut attributes, name);
    attributes.extend_from_slice(b"ctorch.jit._pickle\nrestore_type_tag\n(]");
    text(&mut attributes, "List[Tensor]");
    attributes.extend_from_slice(b"tR");
    let code = format!("  __parameters__ = []\n  __buffers__ = []\n  {name} : List[Tensor]\n");
    write_archive(folder, &code, forward, &attributes, &[]);
}

fn write_archive(folder: &Path, declared: &str, forward: &str, attributes: &[u8], tensors: &[&[f32]]) {
    let code = format!("class Net(Module):\n{declared}  def forward(self: __torch__.Net,\n    {forward}\n");
    let pickle = [&b"\x80\x02c__torch__\nNet\n)\x81}("[..], attributes, b"ub."].concat();
    let file = std::fs::File::create(folder.join("model.pt")).unwrap();
    let mut archive = ZipWriter::new(file);
    let mut entry = |name: &str, method, bytes: &[u8]| {
        archive
            .start_file(format!("net/{name}"), SimpleFileOptions::default().compression_method(method))
            .unwrap();
        archive.write_all(bytes).unwrap();
    };
    entry("data.pkl", CompressionMethod::Stored, &pickle);
    entry("code/__torch__.py", CompressionMethod::Deflated, code.as_bytes());
    entry("constants.pkl", CompressionMethod::Stored, b"\x80\x02).");
    entry("version", CompressionMethod::Stored, b"3\n");
    for (index, values) in tensors.iter().enumerate() {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        entry(&format!("data/{index}"), CompressionMethod::Stored, &bytes);
    }
    archive.finish().unwrap();
}

fn text(pickle: &mut Vec<u8>, value: &str) {
    pickle.push(b'X');
    pickle.extend_from_slice(&(value.len() as u32).to_le_bytes());
    pickle.extend_from_slice(value.as_bytes());
}

fn integer(pickle: &mut Vec<u8>, value: i64) {
    pickle.push(b'J');
    pickle.extend_from_slice(&(value as i32).to_le_bytes());
}

/// A call of PyTorch's `_rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks)`.
fn tensor(pickle: &mut Vec<u8>, index: usize, shape: &[i64]) {
    pickle.extend_from_slice(b"ctorch._utils\n_rebuild_tensor_v2\n((");
    text(pickle, "storage");
    pickle.extend_from_slice(b"ctorch\nFloatStorage\n");
    text(pickle, &index.to_string());
    text(pickle, "cpu");
    integer(pickle, shape.iter().product());
    pickle.extend_from_slice(b"tQ");
    integer(pickle, 0);
    let strides = (0..shape.len()).map(|axis| shape[axis + 1..].iter().product());
    for numbers in [shape.to_vec(), strides.collect()] {
        pickle.push(b'(');
        numbers.into_iter().for_each(|number| integer(pickle, number));
        pickle.push(b't');
    }
    pickle.extend_from_slice(b"\x89ccollections\nOrderedDict\n)RtR");
}

/// Numbers that look random and are the same each time.
pub fn noise(count: i64) -> Vec<f32> {
    (0..count).map(|index| ((index * 2_654_435_761 % 1_000) as f32) / 500.0 - 1.0).collect()
}

/// The model that `config` (JSON) makes of the file in `folder`.
pub fn model(folder: &Path, config: &str) -> TorchModel {
    TorchModel::new("net", &ModelConfig::from_json(config).unwrap(), folder).unwrap().0
}
