//! Tells the linker where libtorch lies when the program runs.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // libtorch beside the program comes first, so that a folder with both can be moved to another machine.
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN");
    if let Some(libtorch) = std::env::var_os("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", libtorch.to_string_lossy());
    }
}
