//! Link arguments of the shared object, and the CUDA kernels' machine code.

#[cfg(feature = "cuda")]
#[path = "src/cuda/kernels/compile/mod.rs"]
mod kernels;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A thread of ours may still be returning when the server closes the library: its code must stay mapped.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtriton_spleenseg.so");
    #[cfg(feature = "cuda")]
    if let Err(error) = kernels::embed() {
        for line in error.to_string().lines() {
            println!("cargo::error={line}");
        }
    }
}
