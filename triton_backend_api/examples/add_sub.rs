//! OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1, FP32 of any shape. Only what is asked for is computed.

use triton_backend_api::*;

struct AddSub;

impl Model for AddSub {
    fn load(_: &ModelContext) -> Result<Self> {
        Ok(Self)
    }
}

struct Calculator;

impl Instance for Calculator {
    type Model = AddSub;

    fn create(_: &AddSub, _: &InstanceContext) -> Result<Self> {
        Ok(Self)
    }

    fn infer(&mut self, _: &AddSub, request: &Request, reply: &mut Reply) -> Result<()> {
        let (left, right) = (request.input("INPUT0")?, request.input("INPUT1")?);
        let (a, b) = (left.elements::<f32>()?, right.elements::<f32>()?);
        if left.shape() != right.shape() {
            let (left, right) = (left.shape(), right.shape());
            return Err(Error::invalid_arg(format!(
                "INPUT0 is {left:?}, INPUT1 {right:?}; equal shapes are accepted"
            )));
        }
        for name in request.requested_outputs()? {
            let sign = if name == "OUTPUT0" { 1.0 } else { -1.0 };
            let mut output = reply.output(&name, DataType::Fp32, left.shape())?;
            let places = output.bytes_mut()?.chunks_exact_mut(size_of::<f32>());
            for (place, (a, b)) in places.zip(a.iter().zip(b.iter())) {
                place.copy_from_slice(&(a + sign * b).to_ne_bytes());
            }
        }
        Ok(())
    }
}

export_backend!(AddSub, Calculator);
