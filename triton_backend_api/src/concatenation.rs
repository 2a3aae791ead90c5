//! One tensor for all requests of a batch: put together along the batch axis, and taken apart again.

use crate::batch::Entry;
use crate::data_type::{DataType, Element};
use crate::error::{Error, Result};
use crate::memory::HostMemory;

/// Inputs of all requests of a batch, concatenated along the first axis.
///
/// A request whose inputs do not fit the others' fails alone and takes no part; so does one that failed before. The
/// results are taken apart in the order of the requests: [`Concatenation::split`].
///
/// ```
/// # use triton_backend_api::*;
/// # fn negate(values: &[f32]) -> Vec<f32> { values.iter().map(|value| -value).collect() }
/// fn execute(batch: &mut Batch) -> Result<()> {
///     let (entries, mut execution) = batch.as_one_execution();
///     let inputs = Concatenation::of(entries, &["INPUT0"])?;
///     execution.mark_compute_start();
///     let results = negate(inputs.elements("INPUT0")?);
///     execution.mark_compute_end();
///     inputs.split(entries, "OUTPUT0", inputs.shape("INPUT0")?, &results)
/// }
/// ```
pub struct Concatenation {
    /// How many rows each request has in it; `None` for one that takes no part.
    rows: Vec<Option<usize>>,
    tensors: Vec<Tensor>,
}

struct Tensor {
    name: String,
    data_type: DataType,
    shape: Vec<i64>,
    memory: HostMemory,
}

impl Concatenation {
    /// Puts the inputs of these names together, each copied once into memory aligned to 64 bytes. An error only where
    /// that memory cannot be had; what is wrong with one request fails that request ([`Entry::fail`]).
    pub fn of(entries: &mut [Entry], names: &[&str]) -> Result<Self> {
        let mut models: Vec<Option<(DataType, Vec<i64>)>> = names.iter().map(|_| None).collect();
        let mut rows = Vec::with_capacity(entries.len());
        for entry in entries.iter_mut() {
            let count = match entry.is_open() {
                true => rows_of(entry, names, &mut models).map_err(|e| entry.fail(e)).ok(),
                false => None,
            };
            rows.push(count);
        }
        let total: usize = rows.iter().flatten().sum();
        let mut tensors = Vec::with_capacity(names.len());
        for (name, model) in names.iter().zip(models) {
            let Some((data_type, mut shape)) = model else { continue }; // no request takes part
            shape[0] = i64::try_from(total).unwrap_or(i64::MAX);
            let memory = HostMemory::zeroed(data_type.tensor_byte_size(&shape)?)?;
            tensors.push(Tensor { name: (*name).to_owned(), data_type, shape, memory });
        }
        for tensor in &mut tensors {
            let row = tensor.memory.as_slice().len().checked_div(total).unwrap_or(0);
            let mut rest = tensor.memory.as_mut_slice();
            for (entry, count) in entries.iter_mut().zip(&rows) {
                let Some(count) = count else { continue };
                let (place, after) = rest.split_at_mut(count * row);
                rest = after;
                let copied = entry.request.input(&tensor.name).and_then(|input| input.copy_to(place));
                copied.unwrap_or_else(|e| entry.fail(e)); // its rows stay zero
            }
        }
        Ok(Self { rows, tensors })
    }

    /// How many rows there are in all; 0 where no request takes part.
    pub fn rows(&self) -> usize {
        self.rows.iter().flatten().sum()
    }

    /// The shape of an input with all rows. NOT_FOUND where it is not one of those put together, or no request takes
    /// part.
    pub fn shape(&self, name: &str) -> Result<&[i64]> {
        self.tensor(name).map(|tensor| tensor.shape.as_slice())
    }

    /// The elements of an input with all rows, in C order. NOT_FOUND as for [`Concatenation::shape`]; INVALID_ARG for
    /// another element type.
    pub fn elements<T: Element>(&self, name: &str) -> Result<&[T]> {
        let tensor = self.tensor(name)?;
        if tensor.data_type != T::DATA_TYPE {
            let (is, wanted) = (tensor.data_type, T::DATA_TYPE);
            return Err(Error::invalid_arg(format!("input '{name}' is {is}, read as {wanted}")));
        }
        Ok(tensor.memory.elements())
    }

    fn tensor(&self, name: &str) -> Result<&Tensor> {
        self.tensors
            .iter()
            .find(|tensor| tensor.name == name)
            .ok_or_else(|| Error::not_found(format!("no input '{name}' was concatenated")))
    }

    /// Gives each request that takes part, and asks for it, its rows of a result, as the output `name`. `shape` is that of the whole
    /// result; its first dimension is the number of rows. What goes wrong with one request fails that request; an error
    /// is a `shape` that does not fit.
    pub fn split<T: Element>(
        &self,
        entries: &mut [Entry],
        name: &str,
        shape: &[i64],
        elements: &[T],
    ) -> Result<()> {
        let total = self.rows();
        let count = T::DATA_TYPE.element_count(shape).map_err(|e| e.context(format!("output '{name}'")))?;
        let leading = shape.first().and_then(|rows| usize::try_from(*rows).ok());
        if leading != Some(total) || count != elements.len() || entries.len() != self.rows.len() {
            return Err(Error::internal(format!(
                "output '{name}': {} elements of shape {shape:?} for {} requests; there are {total} rows of {} requests",
                elements.len(),
                entries.len(),
                self.rows.len()
            )));
        }
        let row = count.checked_div(total).unwrap_or(0);
        let mut rest = elements;
        let mut shape = shape.to_vec();
        for (entry, rows) in entries.iter_mut().zip(&self.rows) {
            let Some(rows) = rows else { continue };
            let (own, after) = rest.split_at(rows * row);
            rest = after;
            if entry.is_open() {
                shape[0] = *rows as i64;
                let wanted = entry.request.wants_output(name);
                let written = wanted.and_then(|wanted| match wanted {
                    true => entry.reply.output(name, T::DATA_TYPE, &shape)?.write(own),
                    false => Ok(()),
                });
                written.unwrap_or_else(|e| entry.fail(e));
            }
        }
        Ok(())
    }
}

/// How many rows a request has, after a look at everything that the others have in common with it.
fn rows_of(entry: &Entry, names: &[&str], models: &mut [Option<(DataType, Vec<i64>)>]) -> Result<usize> {
    let inputs = names.iter().map(|name| entry.request.input(name)).collect::<Result<Vec<_>>>()?;
    let mut rows = None;
    for (input, model) in inputs.iter().zip(models.iter()) {
        let (name, shape) = (input.name(), input.shape());
        let wrong = |what: String| Error::invalid_arg(format!("input '{name}' of shape {shape:?}: {what}"));
        let Some((first, own)) = shape.split_first() else {
            return Err(wrong("it has no batch axis".to_owned()));
        };
        input.data_type().tensor_byte_size(shape).map_err(|e| e.context(format!("input '{name}'")))?;
        let count = *first as usize; // not negative: its size in bytes is known
        if *rows.get_or_insert(count) != count {
            return Err(wrong(format!("input '{}' has another number of rows", inputs[0].name())));
        }
        match model {
            Some((data_type, common)) if *data_type != input.data_type() || common[1..] != *own => {
                return Err(wrong(format!(
                    "it is {}, while other requests of its batch have {data_type} {:?} a row",
                    input.data_type(),
                    &common[1..]
                )));
            }
            _ => (),
        }
    }
    for (input, model) in inputs.iter().zip(models) {
        model.get_or_insert_with(|| (input.data_type(), input.shape().to_vec()));
    }
    Ok(rows.unwrap_or(0))
}
