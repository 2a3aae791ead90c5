//! Every output is the input at its place in the configuration, whatever its type and shape.
//!
//! A parameter of a version's own goes before one of all versions: `3.label` before `label`. What is set is told in the
//! response: `label` as it stands, and the text of the file that `note` names.

use triton_backend_api::*;

struct Identity {
    pairs: Vec<(String, String)>,
    said: Vec<(&'static str, String)>,
}

impl Model for Identity {
    fn load(cx: &ModelContext) -> Result<Self> {
        let (inputs, outputs) = (cx.config().inputs()?, cx.config().outputs()?);
        if inputs.len() != outputs.len() {
            let (found, wanted) = (outputs.len(), inputs.len());
            return Err(Error::invalid_arg(format!(
                "{found} outputs for {wanted} inputs: as many are needed"
            )));
        }
        let parameters = cx.config().parameters();
        let own = |key: &str| {
            parameters.get(&format!("{}.{key}", cx.version())).or_else(|| parameters.get(key)).cloned()
        };
        let mut said = Vec::new();
        said.extend(own("label").map(|label| ("label", label)));
        if let Some(note) = own("note") {
            let path = cx.path(&note); // $$TRITON_MODEL_DIRECTORY is the model's folder
            let text = std::fs::read_to_string(&path);
            said.push(("note", text.map_err(|e| Error::not_found(format!("note {}: {e}", path.display())))?));
        }
        let pairs = inputs.into_iter().zip(outputs).map(|(input, output)| (input.name, output.name));
        Ok(Self { pairs: pairs.collect(), said })
    }
}

struct Copier;

impl Instance for Copier {
    type Model = Identity;

    fn create(_: &Identity, _: &InstanceContext) -> Result<Self> {
        Ok(Self)
    }

    fn infer(&mut self, model: &Identity, request: &Request, reply: &mut Reply) -> Result<()> {
        let wanted = request.requested_outputs()?;
        for (input, output) in model.pairs.iter().filter(|(_, output)| wanted.contains(output)) {
            let input = request.input(input)?;
            if input.data_type() == DataType::Bytes {
                let strings = input.byte_strings()?;
                reply.output_byte_strings(output, input.shape(), &strings.iter().collect::<Vec<_>>())?;
                continue;
            }
            let mut output = reply.output(output, input.data_type(), input.shape())?;
            input.copy_to(output.bytes_mut()?)?;
        }
        model.said.iter().try_for_each(|(key, value)| reply.set_parameter(key, value.as_str()))
    }
}

export_backend!(Identity, Copier);
