//! The kernels as build.rs has compiled them.

include!(concat!(env!("OUT_DIR"), "/images.rs"));
