//! Compiles the kernels as host C++, three times: as they are, and for the sanitizers. A sanitizer's library is loaded by a
//! process that has its runtime preloaded; see `Sanitizer` in src/lib.rs.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

const UNITS: [&str; 2] = ["table", "fibers"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=cpp");
    println!("cargo:rerun-if-changed=../src/cuda/kernels");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let none: &[&str] = &[];
    for (name, kernels, fibers) in [
        ("plain", none, none),
        ("address", &["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"], &["-fsanitize=address"]),
        // The scheduler is the order itself and not subject to it.
        ("thread", &["-fsanitize=thread"], &["-DHOST_KERNELS_TSAN"]),
    ] {
        let objects = [compile(&out, UNITS[0], name, kernels)?, compile(&out, UNITS[1], name, fibers)?];
        let library = out.join(format!("libhost_kernels_{name}.so"));
        let mut link = compiler().to_command();
        link.args(["-shared", "-pthread", "-o"]).arg(&library).args(&objects).args(kernels);
        run(&mut link)?;
        println!("cargo:rustc-env=HOST_KERNELS_{}={}", name.to_uppercase(), library.display());
    }
    Ok(())
}

fn compiler() -> cc::Tool {
    cc::Build::new().cpp(true).pic(true).warnings(false).opt_level(1).get_compiler()
}

fn compile(out: &Path, unit: &str, name: &str, flags: &[&str]) -> Result<PathBuf, Box<dyn Error>> {
    let object = out.join(format!("{unit}_{name}.o"));
    let mut command = compiler().to_command();
    // Rounded as on the device; shared memory holds what the block says it does.
    command.args(["-std=c++17", "-g", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-omit-frame-pointer"]);
    command.args(["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-clobbered", "-Icpp", "-I../src/cuda/kernels"]);
    command.args(flags).arg("-c").arg(format!("cpp/{unit}.cpp")).arg("-o").arg(&object);
    run(&mut command)?;
    Ok(object)
}

fn run(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let status = command.status().map_err(|error| {
        format!("the kernels' tests need a C++ compiler (Debian, Ubuntu: apt-get install g++): {command:?}: {error}")
    })?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed: {status}").into()) }
}
