//! Where the bytes of an input are, and how they become a tensor on the network's device.

use std::borrow::Cow;

use tch::{Device, Kind, TchError, Tensor};
use triton_backend_api::{Buffer, HostMemory, Input, Result};

use crate::cuda::Copier;
use crate::device::{self, Way};
use crate::libtorch::Lent;
use crate::torch_error::torch_error;

/// One input of one request.
pub struct View<'a> {
    pub memory: Memory<'a>,
    pub shape: &'a [i64],
}

/// Where its bytes are.
pub enum Memory<'a> {
    /// On the host: in place where they lie in one piece, else gathered.
    Host(Cow<'a, [u8]>),
    /// Some lay on a GPU; copied for a network on the CPU.
    Copied(HostMemory),
    /// For a network on a GPU: at least one lies on a GPU. Together they have as many bytes as the input.
    Buffers(Vec<Buffer<'a>>),
}

impl<'a> Memory<'a> {
    fn of(input: &Input<'a>, device: Device, copier: &Copier) -> Result<Self> {
        let buffers = input.buffers()?;
        if input.byte_size() == 0 || buffers.iter().all(|buffer| buffer.kind().is_host()) {
            return Ok(Self::Host(input.bytes()?));
        }
        if device == Device::Cpu {
            let mut copied = HostMemory::zeroed(input.byte_size())?;
            copier.gather(input, copied.as_mut_slice())?;
            return Ok(Self::Copied(copied));
        }
        Ok(Self::Buffers(buffers.into_iter().filter(|buffer| buffer.byte_size() > 0).collect()))
    }
}

impl<'a> View<'a> {
    /// `device` is the network's.
    pub fn of(input: &Input<'a>, device: Device, copier: &Copier) -> Result<Self> {
        Ok(Self { memory: Memory::of(input, device, copier)?, shape: input.shape() })
    }

    /// The tensor that it is, on `device`: in place where it lies there in one piece.
    pub fn tensor(&'a self, kind: Kind, device: Device) -> Result<Lent<'a>> {
        let over = |bytes| Lent::over(bytes, self.shape, kind).map_err(torch_error);
        match &self.memory {
            Memory::Host(bytes) => {
                let lent = over(bytes)?;
                match device {
                    Device::Cpu => Ok(lent),
                    // Returns when the host memory has been read.
                    gpu => lent.tensor().f_to(gpu).map(Lent::own).map_err(torch_error),
                }
            }
            Memory::Copied(memory) => over(memory.as_slice()),
            Memory::Buffers(buffers) => {
                let devices: Vec<_> =
                    buffers.iter().map(|buffer| device::of_memory(buffer.kind())).collect::<Result<_>>()?;
                let aligned = buffers
                    .first()
                    .is_some_and(|first| first.as_ptr().align_offset(kind.elt_size_in_bytes()) == 0);
                match (device::way_in(&devices, aligned, device), &buffers[..]) {
                    (Way::InPlace, [only]) => Lent::over_buffer(only, self.shape, kind, device),
                    _ => pieces(buffers, &devices, device)
                        .and_then(|pieces| join(&pieces, self.shape, kind, device)),
                }
                .map_err(torch_error)
            }
        }
    }
}

/// The bytes of buffers that lie on `devices`, each on the network's `device`.
fn pieces<'a>(buffers: &[Buffer<'a>], devices: &[Device], device: Device) -> Result<Vec<Lent<'a>>, TchError> {
    let pieces = buffers.iter().zip(devices).map(|(buffer, &from)| {
        let lent = Lent::over_buffer(buffer, &[buffer.byte_size() as i64], Kind::Uint8, from)?;
        if from == device { Ok(lent) } else { lent.tensor().f_to(device).map(Lent::own) }
    });
    pieces.collect()
}

/// One tensor with memory of its own from pieces of bytes.
fn join<'a>(pieces: &[Lent<'_>], shape: &[i64], kind: Kind, device: Device) -> Result<Lent<'a>, TchError> {
    let pieces: Vec<&Tensor> = pieces.iter().map(Lent::tensor).collect();
    let joined = Tensor::f_cat(&pieces, 0)?.f_view_dtype(kind)?.f_reshape(shape)?;
    // The pieces are the server's.
    device::settle(device)?;
    Ok(Lent::own(joined))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cut_anywhere_become_one_tensor() {
        let data = [1.0_f32, 2.0, 3.0].map(f32::to_le_bytes).concat();
        let pieces = [0..1, 1..10, 10..12]
            .map(|part| Lent::over(&data[part.clone()], &[part.len() as i64], Kind::Uint8).unwrap());
        let joined = join(&pieces, &[3, 1], Kind::Float, Device::Cpu).unwrap();
        assert_eq!((joined.tensor().size(), joined.is_lent()), (vec![3, 1], false));
        assert_eq!(Vec::<f32>::try_from(joined.tensor().reshape([-1])).unwrap(), [1.0, 2.0, 3.0]);
        assert!(join(&pieces, &[4], Kind::Float, Device::Cpu).is_err());
    }
}
