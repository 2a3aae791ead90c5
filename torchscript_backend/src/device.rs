//! On which device an instance runs, and what that means for the memory of its requests: decisions alone. What they lead to is in
//! `libtorch`, `batching` and `results`.
//!
//! Whoever queues work on a GPU calls [`settle`] before it returns, so that nothing of a request is under way when its
//! inputs go back to the server or its response is sent. All of it is on the one stream that libtorch gives each thread
//! unless told otherwise, the default one of the device; no other stream is waited for.

use tch::{Device, Kind, TchError, Tensor};
use triton_backend_api::{Error, InstanceKind, MemoryKind, Result};

/// The device of an instance. `gpus` counts those that libtorch can use, or says why it cannot use any.
pub fn of_instance(
    kind: InstanceKind,
    id: i32,
    gpus: impl FnOnce() -> std::result::Result<i64, String>,
) -> Result<Device> {
    match kind {
        InstanceKind::Cpu => Ok(Device::Cpu),
        InstanceKind::Gpu => {
            let refused = |why: String| {
                Error::unavailable(format!("it is {kind}, on GPU {id}, but {why}; without a GPU: KIND_CPU"))
            };
            let count = gpus().map_err(refused)?;
            match usize::try_from(id) {
                Ok(number) if i64::from(id) < count => Ok(Device::Cuda(number)),
                _ => Err(refused(format!("libtorch sees {count} GPUs"))),
            }
        }
        other => Err(Error::unsupported(format!("it is {other}; accepted: KIND_CPU, KIND_GPU"))),
    }
}

/// The device whose memory this is.
pub fn of_memory(kind: MemoryKind) -> Result<Device> {
    match kind {
        MemoryKind::Host | MemoryKind::Pinned => Ok(Device::Cpu),
        MemoryKind::Gpu(id) if id >= 0 => Ok(Device::Cuda(id as usize)),
        other => {
            Err(Error::unsupported(format!("{other} cannot be used; accepted: host, pinned and GPU memory")))
        }
    }
}

/// The memory in which a tensor that lies on `device` becomes an output without leaving it.
pub fn output_memory(device: Device) -> MemoryKind {
    match device {
        Device::Cuda(id) => MemoryKind::Gpu(id as i64),
        _ => MemoryKind::Host,
    }
}

/// How the buffers of an input become one tensor on the device of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Used where they lie.
    InPlace,
    /// Each copied to the device, then joined.
    Joined,
}

/// The way for buffers of these devices; `aligned` tells whether the first begins at a multiple of its element's size.
pub fn way_in(buffers: &[Device], aligned: bool, device: Device) -> Way {
    match buffers {
        [only] if *only == device && aligned => Way::InPlace,
        _ => Way::Joined,
    }
}

/// Waits until the GPU has done what this thread queued. There is nothing to wait for on a CPU.
pub fn settle(device: Device) -> std::result::Result<(), TchError> {
    if device.is_cuda() {
        // A copy to ordinary host memory returns when its stream has got there.
        return Tensor::f_zeros([1], (Kind::Uint8, device))?.f_to(Device::Cpu).map(drop);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(
        kind: InstanceKind,
        id: i32,
        gpus: std::result::Result<i64, &str>,
    ) -> std::result::Result<Device, String> {
        of_instance(kind, id, || gpus.map_err(str::to_owned)).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn a_gpu_instance_runs_on_its_gpu_or_not_at_all() {
        assert_eq!(place(InstanceKind::Gpu, 1, Ok(2)), Ok(Device::Cuda(1)));
        for (id, gpus, parts) in [
            (2, Ok(2), ["GPU 2", "sees 2 GPUs"]),
            (0, Ok(0), ["GPU 0", "sees 0 GPUs"]),
            (-1, Ok(2), ["GPU -1", "sees 2 GPUs"]),
            (0, Err("libtorch_cuda.so is missing"), ["GPU 0", "libtorch_cuda.so is missing"]),
        ] {
            let refused = place(InstanceKind::Gpu, id, gpus).unwrap_err();
            for part in parts.into_iter().chain(["KIND_GPU", "KIND_CPU"]) {
                assert!(refused.contains(part), "{part}: {refused}");
            }
        }
    }

    #[test]
    fn a_cpu_instance_asks_for_no_gpu() {
        let device = of_instance(InstanceKind::Cpu, 0, || unreachable!("nobody asked for a GPU"));
        assert_eq!(device.unwrap(), Device::Cpu);
        let refused = place(InstanceKind::Model, 0, Ok(1)).unwrap_err();
        assert!(refused.contains("KIND_MODEL") && refused.contains("KIND_CPU, KIND_GPU"), "{refused}");
    }

    #[test]
    fn memory_belongs_to_a_device() {
        for (memory, device) in [
            (MemoryKind::Host, Device::Cpu),
            (MemoryKind::Pinned, Device::Cpu),
            (MemoryKind::Gpu(3), Device::Cuda(3)),
        ] {
            assert_eq!(of_memory(memory).unwrap(), device);
        }
        for strange in [MemoryKind::Unknown(9), MemoryKind::Gpu(-1)] {
            assert!(of_memory(strange).unwrap_err().message().contains("accepted"), "{strange}");
        }
        assert_eq!(output_memory(Device::Cpu), MemoryKind::Host);
        assert_eq!(output_memory(Device::Cuda(3)), MemoryKind::Gpu(3));
    }

    #[test]
    fn only_one_aligned_buffer_of_the_same_device_is_used_in_place() {
        let (cpu, gpu, other) = (Device::Cpu, Device::Cuda(0), Device::Cuda(1));
        for (buffers, aligned, device, way) in [
            (&[gpu][..], true, gpu, Way::InPlace),
            (&[cpu], true, cpu, Way::InPlace),
            (&[gpu], false, gpu, Way::Joined),
            (&[cpu], true, gpu, Way::Joined),
            (&[gpu], true, cpu, Way::Joined),
            (&[other], true, gpu, Way::Joined),
            (&[gpu, gpu], true, gpu, Way::Joined),
            (&[gpu, cpu], true, gpu, Way::Joined),
            (&[], true, gpu, Way::Joined),
        ] {
            assert_eq!(way_in(buffers, aligned, device), way, "{buffers:?} for {device:?}");
        }
    }

    #[test]
    fn there_is_nothing_to_wait_for_on_a_cpu() {
        settle(Device::Cpu).unwrap();
    }
}
