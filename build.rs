//! Link arguments of the shared object.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A thread of ours may still be returning when the server closes the library: its code must stay mapped.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtriton_spleenseg.so");
}
