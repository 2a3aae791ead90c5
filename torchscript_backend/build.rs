//! Tells the linker where libtorch lies when the backend runs.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // libtorch beside the backend comes first, so that a folder with both can be moved to another machine.
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN");
    if let Some(libtorch) = std::env::var_os("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", libtorch.to_string_lossy());
    }
    // libtorch keeps threads and thread-local destructors for the life of the process: it must never be unmapped.
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,nodelete");
    // tch exports C callbacks of its own; a backend shows its entry points and nothing else.
    println!("cargo:rustc-link-arg-cdylib=-Wl,--exclude-libs,ALL");
}
