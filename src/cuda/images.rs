//! The kernels as build.rs has compiled them.

/// An image where the driver may read its structures: embedded bytes alone may lie at any address.
#[repr(C, align(16))]
struct Aligned<Image: ?Sized>(Image);

include!(concat!(env!("OUT_DIR"), "/images.rs"));
