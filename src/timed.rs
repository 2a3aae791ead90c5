//! A device that times the steps of one request.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use triton_backend_api::bls::ResponseTensor;
use triton_backend_api::{HostMemory, Input, MemoryKind, Output, OutputMemory, Result};

use crate::bridge::Bridge;
use crate::config::{KeepLargest, Scale};
use crate::native::{Placement, VoxelCount};
use crate::pipeline::{Argmax, CropScaleResize, Device};
use crate::volume::{Foreground, LabelType, LogitType, Shape3, VoxelType};

/// Passes every step on to a device and adds up how long it took.
pub struct Timed<'d, D> {
    device: &'d D,
    steps: RefCell<Vec<(&'static str, Duration)>>,
}

impl<'d, D> Timed<'d, D> {
    /// Times what `device` does.
    pub fn new(device: &'d D) -> Self {
        Self { device, steps: RefCell::new(Vec::new()) }
    }

    /// What was timed so far, in the order the steps were first taken.
    pub fn steps(&self) -> Vec<(&'static str, Duration)> {
        self.steps.borrow().clone()
    }

    /// Times anything else as a step of the same request.
    pub fn time<R>(&self, step: &'static str, work: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = work();
        let took = start.elapsed();
        let mut steps = self.steps.borrow_mut();
        match steps.iter_mut().find(|(name, _)| *name == step) {
            Some((_, total)) => *total += took,
            None => steps.push((step, took)),
        }
        result
    }
}

/// `read=0.1 foreground=3.2 .. ms`, in the order the steps were first taken.
impl<D> fmt::Display for Timed<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (step, took) in self.steps.borrow().iter() {
            write!(f, "{step}={:.3} ", took.as_secs_f64() * 1e3)?;
        }
        f.write_str("ms")
    }
}

impl<D: Device> Device for Timed<'_, D> {
    type Input<'a> = D::Input<'a>;
    type Tensor = D::Tensor;
    type Logits<'a> = D::Logits<'a>;
    type Labels = D::Labels;
    type Output<'a> = D::Output<'a>;

    fn shape(&self, input: &D::Input<'_>) -> Shape3 {
        self.device.shape(input)
    }

    fn find_foreground(&self, input: &D::Input<'_>, scale: &Scale) -> Result<Foreground> {
        self.time("foreground", || self.device.find_foreground(input, scale))
    }

    fn crop_scale_resize(&self, input: &D::Input<'_>, plan: &CropScaleResize) -> Result<D::Tensor> {
        self.time("resize", || self.device.crop_scale_resize(input, plan))
    }

    fn count_not_finite(
        &self,
        input: &D::Input<'_>,
        found: Foreground,
        resized: &D::Tensor,
    ) -> Result<Foreground> {
        self.time("foreground", || self.device.count_not_finite(input, found, resized))
    }

    fn argmax(&self, logits: &D::Logits<'_>) -> Result<Argmax<D::Labels>> {
        self.time("argmax", || self.device.argmax(logits))
    }

    fn keep_largest(&self, labels: D::Labels, keep: &KeepLargest) -> Result<D::Labels> {
        self.time("components", || self.device.keep_largest(labels, keep))
    }

    fn contour(&self, labels: &D::Labels) -> Result<D::Labels> {
        self.time("contour", || self.device.contour(labels))
    }

    fn restore(&self, labels: &D::Labels, placement: &Placement) -> Result<(D::Labels, VoxelCount)> {
        self.time("restore", || self.device.restore(labels, placement))
    }

    fn count(&self, labels: &D::Labels, placement: &Placement) -> Result<VoxelCount> {
        self.time("count", || self.device.count(labels, placement))
    }

    fn write(&self, labels: &D::Labels, output: D::Output<'_>) -> Result<()> {
        self.time("write", || self.device.write(labels, output))
    }
}

impl<D: Bridge> Bridge for Timed<'_, D> {
    type Source<'a> = D::Source<'a>;
    type Memory = D::Memory;

    fn output_memory(&self) -> MemoryKind {
        self.device.output_memory()
    }

    fn answer_memory(&self) -> Option<Arc<dyn OutputMemory>> {
        self.device.answer_memory()
    }

    fn settle(&self) -> Option<String> {
        self.device.settle()
    }

    fn read<'a>(&self, input: &Input<'a>) -> Result<D::Source<'a>> {
        self.time("read", || self.device.read(input))
    }

    fn volumes<'s>(
        &self,
        source: &'s D::Source<'_>,
        voxel_type: VoxelType,
        size: Shape3,
    ) -> Result<Vec<D::Input<'s>>> {
        self.device.volumes(source, voxel_type, size)
    }

    fn labels_to_host(&self, labels: D::Labels) -> Result<HostMemory> {
        self.device.labels_to_host(labels)
    }

    fn memory(&self, tensor: D::Tensor) -> Result<D::Memory> {
        self.device.memory(tensor)
    }

    fn logits<'r>(
        &self,
        reply: &ResponseTensor<'r>,
        logit_type: LogitType,
        classes: usize,
        size: Shape3,
    ) -> Result<D::Logits<'r>> {
        self.device.logits(reply, logit_type, classes, size)
    }

    fn write_output(&self, labels: &[&D::Labels], output: Output<'_>, label_type: LabelType) -> Result<()> {
        self.time("write", || self.device.write_output(labels, output, label_type))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_taken_twice_is_one_entry_in_the_order_of_first_use() {
        let timed = Timed::new(&());
        timed.time("resize", || std::thread::sleep(Duration::from_millis(2)));
        timed.time("write", || ());
        timed.time("resize", || std::thread::sleep(Duration::from_millis(2)));
        let steps = timed.steps.borrow();
        assert_eq!(steps.iter().map(|step| step.0).collect::<Vec<_>>(), ["resize", "write"]);
        assert!(steps[0].1 >= Duration::from_millis(4), "both times it was taken");
        let line = timed.to_string();
        assert!(line.starts_with("resize=") && line.contains(" write=") && line.ends_with(" ms"), "{line}");
    }
}
