//! A network of two classes, of which the second wins above a half: OUTPUT__0 = [0.5 - INPUT__0, INPUT__0 - 0.5], FP32.
//!
//! On KIND_GPU it takes its input where it lies and asks for its output in memory of its GPU; between them it computes on the
//! host. The parameter `write_to` names a file that gets each input, the last one staying.

#[path = "../../src/cuda/copies.rs"]
mod cuda;

use std::path::PathBuf;

use cuda::Copier;
use triton_backend_api::*;

const INPUT: &str = "INPUT__0";
const OUTPUT: &str = "OUTPUT__0";
const THRESHOLD: f32 = 0.5;

struct Threshold {
    write_to: Option<PathBuf>,
}

impl Model for Threshold {
    fn load(cx: &ModelContext) -> Result<Self> {
        Ok(Self { write_to: cx.config().parameter("write_to")? })
    }

    fn preferred_instances() -> &'static [InstanceKind] {
        &[InstanceKind::Gpu, InstanceKind::Cpu]
    }
}

struct Network {
    copier: Copier,
    /// Where the output is wanted.
    memory: MemoryKind,
}

impl Instance for Network {
    type Model = Threshold;

    fn create(_: &Threshold, cx: &InstanceContext) -> Result<Self> {
        let memory = match cx.kind() {
            InstanceKind::Gpu => MemoryKind::Gpu(i64::from(cx.device_id())),
            _ => MemoryKind::Host,
        };
        Ok(Self { copier: Copier::new(2), memory })
    }

    fn infer(&mut self, model: &Threshold, request: &Request, reply: &mut Reply) -> Result<()> {
        let input = request.input(INPUT)?;
        let &[batch, 1, ref size @ ..] = input.shape() else {
            return Err(Error::invalid_arg(format!(
                "{INPUT} is {:?}; accepted is one channel: [N, 1, ..]",
                input.shape()
            )));
        };
        if input.data_type() != DataType::Fp32 {
            return Err(Error::invalid_arg(format!("{INPUT} is {}; accepted is FP32", input.data_type())));
        }
        let mut given = self.copier.take(input.byte_size())?;
        self.copier.gather(&input, given.as_mut_slice())?;
        if let Some(path) = &model.write_to {
            let written = std::fs::write(path, given.as_slice());
            written.map_err(|e| Error::internal(format!("write_to {}: {e}", path.display())))?;
        }
        let mut scores = self.copier.take(2 * input.byte_size())?;
        let volume = size.iter().product::<i64>().unsigned_abs() as usize;
        let volumes = given.elements::<f32>().chunks(volume.max(1));
        for (x, scores) in volumes.zip(scores.elements_mut::<f32>().chunks_mut(2 * volume.max(1))) {
            let (first, second) = scores.split_at_mut(x.len());
            for ((x, first), second) in x.iter().zip(first).zip(second) {
                *first = THRESHOLD - x;
                *second = x - THRESHOLD;
            }
        }
        let shape: Vec<i64> = [batch, 2].into_iter().chain(size.iter().copied()).collect();
        let mut output = reply.output_in(self.memory, OUTPUT, DataType::Fp32, &shape)?;
        match output.kind() {
            MemoryKind::Gpu(id) => self.copier.write(scores.as_slice(), &mut output, id),
            _ => output.bytes_mut().map(|bytes| bytes.copy_from_slice(scores.as_slice())),
        }
    }
}

export_backend!(Threshold, Network);
