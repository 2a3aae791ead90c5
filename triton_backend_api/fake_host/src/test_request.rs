//! Requests as a test makes them.

use std::collections::HashMap;
use std::ffi::CString;

use triton_backend_api::sys::*;

use crate::answer::ParameterValue;
use crate::block::Block;
use crate::request::InputObject;

/// The id that ties the requests of a sequence together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Correlation {
    /// A number; 0 is none.
    Number(u64),
    /// A string.
    Text(CString),
}

impl Correlation {
    /// A string id.
    pub fn text(id: &str) -> Self {
        Self::Text(c_string(id))
    }
}

/// Where an output's memory is when the backend asks for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputPlace {
    pub misalign: usize,
    /// `None` is the kind that the backend would like.
    pub memory: Option<(TRITONSERVER_MemoryType, i64)>,
}

/// A request to come.
#[derive(Clone, Debug)]
pub struct TestRequest {
    pub(crate) id: String,
    pub(crate) correlation: Correlation,
    pub(crate) flags: u32,
    pub(crate) timeout_us: u64,
    pub(crate) parameters: Vec<(String, ParameterValue)>,
    pub(crate) cancelled: bool,
    pub(crate) traced: bool,
    pub(crate) inputs: Vec<TestInput>,
    pub(crate) outputs: Vec<String>,
    pub(crate) places: HashMap<String, OutputPlace>,
}

/// One of its inputs.
#[derive(Clone, Debug)]
pub struct TestInput {
    name: String,
    data_type: TRITONSERVER_DataType,
    shape: Vec<i64>,
    bytes: Vec<u8>,
    cuts: Vec<usize>,
    misalign: usize,
    memories: Vec<(TRITONSERVER_MemoryType, i64)>,
    said_size: Option<u64>,
    of_policies: HashMap<String, (Vec<u8>, (TRITONSERVER_MemoryType, i64))>,
}

impl TestRequest {
    /// A request with these inputs.
    pub fn new(inputs: impl IntoIterator<Item = TestInput>) -> Self {
        Self {
            id: String::new(),
            correlation: Correlation::Number(0),
            flags: 0,
            timeout_us: 0,
            parameters: Vec::new(),
            cancelled: false,
            traced: false,
            inputs: inputs.into_iter().collect(),
            outputs: Vec::new(),
            places: HashMap::new(),
        }
    }

    /// With that id.
    pub fn id(mut self, id: &str) -> Self {
        id.clone_into(&mut self.id);
        self
    }

    /// With that correlation id.
    pub fn correlation(mut self, correlation: Correlation) -> Self {
        self.correlation = correlation;
        self
    }

    /// With those sequence flags.
    pub fn flags(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }

    /// With that timeout.
    pub fn timeout_us(mut self, timeout_us: u64) -> Self {
        self.timeout_us = timeout_us;
        self
    }

    /// With that parameter.
    pub fn parameter(mut self, name: &str, value: ParameterValue) -> Self {
        self.parameters.push((name.to_owned(), value));
        self
    }

    /// Given up by its client before it comes.
    pub fn cancelled(mut self) -> Self {
        self.cancelled = true;
        self
    }

    /// With a trace.
    pub fn traced(mut self) -> Self {
        self.traced = true;
        self
    }

    /// Asking for that output. A request that asks for none gets all that the model's configuration declares.
    pub fn output(mut self, name: &str) -> Self {
        self.outputs.push(name.to_owned());
        self
    }

    /// With the memory of an output so many bytes off a multiple of 64.
    pub fn output_misaligned(mut self, name: &str, misalign: usize) -> Self {
        self.places.entry(name.to_owned()).or_default().misalign = misalign;
        self
    }

    /// With an output's memory of that kind, whatever the backend asks for.
    pub fn output_memory(mut self, name: &str, memory_type: TRITONSERVER_MemoryType, id: i64) -> Self {
        self.places.entry(name.to_owned()).or_default().memory = Some((memory_type, id));
        self
    }
}

impl TestInput {
    /// An input of any type, in one aligned buffer of host memory.
    pub fn new(name: &str, data_type: TRITONSERVER_DataType, shape: &[i64], bytes: Vec<u8>) -> Self {
        Self {
            name: name.to_owned(),
            data_type,
            shape: shape.to_vec(),
            bytes,
            cuts: Vec::new(),
            misalign: 0,
            memories: vec![(TRITONSERVER_MEMORY_CPU, 0)],
            said_size: None,
            of_policies: HashMap::new(),
        }
    }

    /// An FP32 input.
    pub fn fp32(name: &str, shape: &[i64], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        Self::new(name, TRITONSERVER_TYPE_FP32, shape, bytes)
    }

    /// In several buffers, cut at these offsets.
    pub fn split(mut self, cuts: &[usize]) -> Self {
        self.cuts = cuts.to_vec();
        self
    }

    /// With every buffer so many bytes off a multiple of 64.
    pub fn misaligned(mut self, misalign: usize) -> Self {
        self.misalign = misalign;
        self
    }

    /// In memory that is declared to be of that kind.
    pub fn memory(mut self, memory_type: TRITONSERVER_MemoryType, id: i64) -> Self {
        self.memories = vec![(memory_type, id)];
        self
    }

    /// With its buffers in memory of these kinds, in turns; there is at least one.
    pub fn memories(mut self, kinds: &[(TRITONSERVER_MemoryType, i64)]) -> Self {
        self.memories = kinds.to_vec();
        self
    }

    /// With other bytes, in another kind of memory, for the instances of one host policy.
    pub fn for_host_policy(
        mut self,
        policy: &str,
        bytes: Vec<u8>,
        memory: (TRITONSERVER_MemoryType, i64),
    ) -> Self {
        self.of_policies.insert(policy.to_owned(), (bytes, memory));
        self
    }

    /// Whose description says it is that long, true or not.
    pub fn saying_size(mut self, byte_size: u64) -> Self {
        self.said_size = Some(byte_size);
        self
    }

    pub(crate) fn build(self) -> InputObject {
        let mut buffers = Vec::new();
        let mut start = 0;
        let ends = self.cuts.iter().copied().chain([self.bytes.len()]);
        for (end, memory) in ends.zip(self.memories.iter().cycle()) {
            let end = end.clamp(start, self.bytes.len());
            buffers.push(Block::holding(&self.bytes[start..end], self.misalign, *memory));
            start = end;
        }
        let of_policies = self.of_policies.into_iter();
        let of_policies = of_policies.map(|(name, (bytes, kind))| (name, Block::holding(&bytes, 0, kind)));
        InputObject {
            name: c_string(&self.name),
            data_type: self.data_type,
            shape: self.shape,
            byte_size: self.said_size.unwrap_or(self.bytes.len() as u64),
            buffers,
            of_policies: of_policies.collect(),
        }
    }
}

pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}
