//! Compiles the CUDA kernels for every architecture and embeds them.
//!
//! Compiling takes a minute of processor time, so what comes out is kept in the project's cache folder under the hash of what
//! went in, for all checkouts and profiles.

mod nvrtc;

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use sha2::{Digest, Sha256};

use nvrtc::{Nvrtc, Product, Source};

const FOLDER: &str = "src/cuda/kernels";
const LOCK: &str = "scripts/requirements/cuda.lock";

/// Machine code is made by the newer compiler ..
const CUBIN_LIBRARY: &str = "libnvrtc.so.12";
const CUBINS: [u32; 7] = [75, 80, 86, 89, 90, 100, 120];
/// .. and PTX by the older one, because drivers refuse PTX that is newer than they are.
const PTX_LIBRARY: &str = "libnvrtc.so.11.2";
const PTX: u32 = 70;

/// No contraction: every operation is rounded, as on the CPU.
const OPTIONS: [&str; 2] = ["--std=c++17", "--fmad=false"];

/// Writes `images.rs` to OUT_DIR.
pub fn embed() -> Result<(), Box<dyn Error>> {
    for input in [FOLDER, LOCK] {
        println!("cargo:rerun-if-changed={input}");
    }
    for variable in ["SPLEENSEG_NVRTC", "TRITON_SPLEENSEG_CACHE", "XDG_CACHE_HOME", "HOME"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let files = sources()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let key = key(&files)?;
    let folder = match cache_folder().map(|cache| cache.join("kernels").join(key)) {
        Some(folder) if fs::create_dir_all(&folder).is_ok() => folder,
        _ => out.clone(),
    };
    compile_missing(&folder, &files)?;

    let mut code = String::new();
    writeln!(
        code,
        "/// Machine code by the compute capability that it is made for, 10 times the major plus the minor number."
    )?;
    writeln!(code, "pub const CUBINS: &[(u32, &[u8])] = &[")?;
    for target in CUBINS {
        let name = file_name(target);
        fs::copy(folder.join(&name), out.join(format!("embedded_{name}")))?;
        writeln!(code, "    ({target}, {}),", aligned(&name))?;
    }
    let name = file_name(PTX);
    fs::copy(folder.join(&name), out.join(format!("embedded_{name}")))?;
    writeln!(code, "];\n/// PTX for compute capability 7.0, which ends with a NUL.")?;
    writeln!(code, "pub const PTX: &[u8] = {};", aligned(&name))?;
    fs::write(out.join("images.rs"), code)?;
    Ok(())
}

/// The bytes of a file, in the type `Aligned` of `images.rs`.
fn aligned(name: &str) -> String {
    let bytes = format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/embedded_{name}\"))");
    format!("{{ const IMAGE: &Aligned<[u8]> = &Aligned(*{bytes}); &IMAGE.0 }}")
}

fn file_name(target: u32) -> String {
    if target == PTX { format!("compute_{target}.ptx") } else { format!("sm_{target}.cubin") }
}

/// Every source, sorted by name.
fn sources() -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(FOLDER)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "cu" || extension == "h") {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            files.push((name, fs::read_to_string(&path)?));
        }
    }
    files.sort();
    Ok(files)
}

/// What decides the machine code: the sources, the options, the compilers' versions.
fn key(files: &[(String, String)]) -> Result<String, Box<dyn Error>> {
    let mut hash = Sha256::new();
    for (name, text) in files {
        hash.update(format!("{name} {}\n{text}", text.len()));
    }
    hash.update(format!("{OPTIONS:?} {CUBINS:?} {PTX} {:?}", env::var_os("SPLEENSEG_NVRTC")));
    hash.update(fs::read(LOCK)?);
    Ok(hex(&hash.finalize()))
}

/// The first 12 digits, as the scripts have them.
fn hex(hash: &[u8]) -> String {
    hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// The folder of scripts/lib/common.sh.
fn cache_folder() -> Option<PathBuf> {
    let given = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    given("TRITON_SPLEENSEG_CACHE")
        .or_else(|| given("XDG_CACHE_HOME").map(|cache| cache.join("triton-spleenseg")))
        .or_else(|| given("HOME").map(|home| home.join(".cache/triton-spleenseg")))
}

/// The folder with both versions of NVRTC.
fn nvrtc_folder() -> Result<PathBuf, Box<dyn Error>> {
    let folder = match env::var_os("SPLEENSEG_NVRTC") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let hash = hex(&Sha256::digest(fs::read(LOCK)?));
            let packages = format!("env/cuda-{hash}/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib");
            cache_folder().ok_or("neither TRITON_SPLEENSEG_CACHE nor HOME is set")?.join(packages)
        }
    };
    if [CUBIN_LIBRARY, PTX_LIBRARY].iter().all(|library| folder.join(library).exists()) {
        return Ok(folder);
    }
    Err(format!(
        "the CUDA kernels need NVIDIA's compiler: {CUBIN_LIBRARY} and {PTX_LIBRARY} are not both in {}. Get them with \
         scripts/setup.sh cuda (115 MB to download, no GPU needed), name their folder with SPLEENSEG_NVRTC, or build for \
         CPUs only with --no-default-features --features backend",
        folder.display()
    )
    .into())
}

/// Compiles what is not in the folder, as much at a time as cargo allows.
fn compile_missing(folder: &Path, files: &[(String, String)]) -> Result<(), Box<dyn Error>> {
    let missing: Vec<u32> =
        CUBINS.into_iter().chain([PTX]).filter(|target| !folder.join(file_name(*target)).exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let libraries = nvrtc_folder()?;
    let (newer, older) =
        (Nvrtc::open(&libraries.join(CUBIN_LIBRARY))?, Nvrtc::open(&libraries.join(PTX_LIBRARY))?);
    let source = Source { main: "all.cu", files };
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), String> {
        while let Some(target) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (nvrtc, kind, product) = match *target {
                PTX => (&older, "compute", Product::Ptx),
                _ => (&newer, "sm", Product::Cubin),
            };
            let architecture = format!("--gpu-architecture={kind}_{target}");
            let options = [OPTIONS.as_slice(), &[architecture.as_str()]].concat();
            let name = file_name(*target);
            let in_file = |error: Box<dyn Error>| format!("{name}: {error}");
            let code = nvrtc.compile(&source, &options, product).map_err(in_file)?;
            // Another build may be writing the same: each replaces the file in one step.
            let unfinished = folder.join(format!("{name}.{}", std::process::id()));
            fs::write(&unfinished, code)
                .and_then(|()| fs::rename(&unfinished, folder.join(&name)))
                .map_err(|error| in_file(error.into()))?;
        }
        Ok(())
    };
    let jobs =
        env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(1).clamp(1, missing.len());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|_| Err("a thread of the compiler panicked".to_owned()))
        })
    })?;
    Ok(())
}
