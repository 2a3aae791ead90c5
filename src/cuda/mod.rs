//! The steps on an NVIDIA GPU. [`kernels`] are the device's code and [`steps`] what is started in which order; both know
//! nothing of the driver.

pub mod images;
pub mod kernels;
pub mod queue;
pub mod steps;
