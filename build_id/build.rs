//! Hashes what the library is built from.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use sha2::{Digest, Sha256};

/// Files and folders, from the root of the repository. Absent ones are left out.
const SOURCES: [&str; 8] = [
    "Cargo.lock",
    "Cargo.toml",
    "build.rs",
    "build_id",
    "src",
    "triton_backend_api/Cargo.toml",
    "triton_backend_api/include",
    "triton_backend_api/src",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("..");
    let mut files = Vec::new();
    for source in SOURCES.map(|source| root.join(source)).into_iter().filter(|source| source.exists()) {
        println!("cargo:rerun-if-changed={}", source.display());
        collect(source, &mut files)?;
    }
    files.sort();

    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for file in &files {
        add(file.strip_prefix(&root)?.to_string_lossy().as_bytes());
        add(&fs::read(file)?);
    }
    add(&Command::new(env::var("RUSTC")?).arg("-vV").output()?.stdout);
    for setting in ["TARGET", "PROFILE"] {
        add(env::var(setting)?.as_bytes());
    }
    let hash: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    println!("cargo:rustc-env=SPLEENSEG_BUILD_ID=spleenseg-{}+{hash}", env::var("CARGO_PKG_VERSION")?);
    Ok(())
}

/// All files at and below a path, without what is hidden.
fn collect(path: PathBuf, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    if !path.is_dir() {
        files.push(path);
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            collect(entry.path(), files)?;
        }
    }
    Ok(())
}
