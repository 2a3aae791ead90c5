//! Gives the shared object the name that the driver is looked for by: once a test has loaded it, whoever opens
//! `libcuda.so.1` gets it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
}
