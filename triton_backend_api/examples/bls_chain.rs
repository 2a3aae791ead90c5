//! OUTPUT0 and OUTPUT1 are what the model `last` makes of the answers of two others to INPUT0, which work at the same time.
//!
//! Parameters: `first` and `second` name models from INPUT0 to OUTPUT0, `last` one from INPUT0, INPUT1 to OUTPUT0, OUTPUT1.

use std::time::Duration;

use triton_backend_api::bls::{InferenceResponse, PendingResponse};
use triton_backend_api::*;

const PATIENCE: Duration = Duration::from_secs(60);

struct Chain {
    server: Server,
    models: [String; 3],
}

impl Model for Chain {
    fn load(cx: &ModelContext) -> Result<Self> {
        let parameters = cx.config().parameters();
        let model = |key| {
            let missing = || Error::invalid_arg(format!("parameter {key} is missing: the name of a model"));
            parameters.get(key).cloned().ok_or_else(missing)
        };
        Ok(Self { server: cx.server().clone(), models: [model("first")?, model("second")?, model("last")?] })
    }
}

impl Chain {
    fn call(&self, parent: &Request, model: usize, inputs: &[Tensor<'_>]) -> Result<PendingResponse> {
        let mut call = self.server.inference_request(&self.models[model], -1)?;
        call.inherit(parent)?;
        for (at, (data_type, shape, bytes)) in inputs.iter().enumerate() {
            call.input(&format!("INPUT{at}"), *data_type, shape, bytes.to_vec())?;
        }
        call.send()
    }
}

type Tensor<'a> = (DataType, &'a [i64], &'a [u8]);

fn tensor<'a>(response: &'a InferenceResponse, name: &str) -> Result<Tensor<'a>> {
    response.error()?;
    let tensor = response.output(name)?;
    let bytes = tensor.buffer.host().ok_or_else(|| Error::unsupported(format!("{name} is on a GPU")))?;
    Ok((tensor.data_type, tensor.shape, bytes))
}

struct Caller;

impl Instance for Caller {
    type Model = Chain;

    fn create(_: &Chain, _: &InstanceContext) -> Result<Self> {
        Ok(Self)
    }

    fn infer(&mut self, chain: &Chain, request: &Request, reply: &mut Reply) -> Result<()> {
        let input = request.input("INPUT0")?;
        let bytes = input.bytes()?;
        let given = [(input.data_type(), input.shape(), &*bytes)];
        let gave_up = || request.is_cancelled();
        // Both are sent before either is waited for. An error here cancels what is under way.
        let (first, second) = (chain.call(request, 0, &given)?, chain.call(request, 1, &given)?);
        let (first, second) = (first.wait(PATIENCE, gave_up)?, second.wait(PATIENCE, gave_up)?);
        let between = [tensor(&first, "OUTPUT0")?, tensor(&second, "OUTPUT0")?];
        let last = chain.call(request, 2, &between)?.wait(PATIENCE, gave_up)?;
        for name in request.requested_outputs()? {
            let (data_type, shape, bytes) = tensor(&last, &name)?;
            reply.output(&name, data_type, shape)?.bytes_mut()?.copy_from_slice(bytes);
        }
        Ok(())
    }
}

export_backend!(Chain, Caller);
