//! Compiles the kernels as host C++.

#[path = "src/compile.rs"]
mod compile;

use std::env;
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    for input in ["cpp", "../src/cuda/kernels", "src/compile.rs", "build.rs"] {
        println!("cargo:rerun-if-changed={input}");
    }
    println!("cargo:rerun-if-env-changed=CXX");
    let folder = env::var("OUT_DIR")?;
    let library = compile::compile(Path::new("."), Path::new(&folder), "plain", &[], &[])?;
    println!("cargo:rustc-env=HOST_KERNELS_PLAIN={}", library.display());
    Ok(())
}
