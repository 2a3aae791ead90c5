//! What identifies a build. A crate of its own, so that a change of any source only runs the build script that hashes them.

/// `spleenseg-VERSION+HASH`: the hash is of all sources that the library is built from, the lock file, the compiler's version,
/// the target and the profile. The same of these give the same id, from a repository or from an archive of it.
pub const BUILD_ID: &str = env!("SPLEENSEG_BUILD_ID");
