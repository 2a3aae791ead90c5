// Compiles the kernels as host C++ to a shared object. Used by the build script, and by tests for the sanitizers.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The object of `root/cpp` in `folder`. `kernels` and `fibers` are the compiler's options for the two units; those of the
/// kernels are also the linker's.
pub(crate) fn compile(
    root: &Path,
    folder: &Path,
    name: &str,
    kernels: &[&str],
    fibers: &[&str],
) -> Result<PathBuf, String> {
    let library = folder.join(format!("libhost_kernels_{name}.so"));
    let mut objects = Vec::new();
    for (unit, options) in [("table", kernels), ("fibers", fibers)] {
        let object = folder.join(format!("{unit}_{name}.o"));
        let mut command = compiler();
        // Rounded as on the device.
        command.args(["-std=c++17", "-O1", "-g", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing"]);
        command.args(["-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Werror"]);
        command.arg("-Wno-unknown-pragmas"); // `#pragma unroll` is NVRTC's
        command.arg("-I").arg(root.join("cpp")).arg("-I").arg(root.join("../src/cuda/kernels")).args(options);
        command.arg("-c").arg(root.join(format!("cpp/{unit}.cpp"))).arg("-o").arg(&object);
        run(&mut command)?;
        objects.push(object);
    }
    let mut link = compiler();
    link.args(["-shared", "-pthread", "-o"]).arg(&library).args(&objects).args(kernels);
    run(&mut link)?;
    Ok(library)
}

fn compiler() -> Command {
    Command::new(env::var("CXX").unwrap_or_else(|_| "c++".to_owned()))
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| {
        format!("the tests of the kernels need a C++ compiler (Debian, Ubuntu: apt-get install g++): {error}")
    })?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed: {status}")) }
}
