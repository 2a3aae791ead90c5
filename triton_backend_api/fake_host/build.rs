//! Link arguments: a backend's library finds the `TRITON*` symbols in the executable that loads it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic");
    println!("cargo:rustc-link-arg-benches=-Wl,--export-dynamic");
}
