//! OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1, FP32 of any shape: all requests of a batch in one computation.

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

    fn infer(&mut self, _: &AddSub, _: &Request, _: &mut Reply) -> Result<()> {
        Err(Error::internal("requests come in batches"))
    }

    fn execute(&mut self, _: &AddSub, batch: &mut Batch) -> Result<()> {
        let (entries, mut times) = batch.as_one_execution();
        // A request that does not fit the others fails alone and takes no part.
        let inputs = Concatenation::of(entries, &["INPUT0", "INPUT1"])?;
        times.mark_compute_start();
        let (a, b) = (inputs.elements::<f32>("INPUT0")?, inputs.elements::<f32>("INPUT1")?);
        let shape = inputs.shape("INPUT0")?;
        if shape != inputs.shape("INPUT1")? {
            let other = inputs.shape("INPUT1")?;
            return Err(Error::invalid_arg(format!(
                "INPUT0 is {shape:?}, INPUT1 {other:?}; equal shapes are accepted"
            )));
        }
        let sums: Vec<f32> = a.iter().zip(b).map(|(a, b)| a + b).collect();
        let differences: Vec<f32> = a.iter().zip(b).map(|(a, b)| a - b).collect();
        times.mark_compute_end();
        inputs.split(entries, "OUTPUT0", shape, &sums)?;
        inputs.split(entries, "OUTPUT1", shape, &differences)
    }
}

export_backend!(AddSub, Calculator);
