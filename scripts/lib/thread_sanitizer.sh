# ThreadSanitizer: the tests of triton_backend_api/races, with the standard library compiled for it too, whose locks would look like races
# otherwise. Source it after suites.sh.
# shellcheck shell=bash

# Part of the suite "sanitizers".
races() {
  local library status=0
  library=$(standard_library_source) || status=$?
  case $status in
    0) run_cargo_tests "thread sanitizer" thread_sanitizer "$library" ;;
    3) skip "thread sanitizer" "the source of Rust's standard library" ;;
    *) count "thread sanitizer" 0 1 0 ;;
  esac
}

# Cargo builds the standard library from LIBRARY, which a variable of cargo's own tests names; a toolchain's own folder stays as it is.
# Without std's feature `backtrace`, which costs time: the sanitizer has its own traces.
thread_sanitizer() { # thread_sanitizer LIBRARY
  (
    export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread" __CARGO_TESTS_ONLY_SRC_ROOT=$1
    cargo test --locked --target x86_64-unknown-linux-gnu --target-dir target/thread_sanitizer \
      -Zbuild-std=std,test -Zbuild-std-features=panic-unwind -p races
  )
}

# Prints where the source of this toolchain's standard library is. Where the toolchain has none (rustup's component rust-src), it is
# downloaded, 4 MB, from where rustup would take it, and must have the hash that the toolchain's manifest names. Status 3: it cannot be had.
standard_library_source() {
  local sysroot manifest library=lib/rustlib/src/rust/library url hash folder
  sysroot=$(rustc --print sysroot)
  if [[ -e $sysroot/$library/Cargo.lock ]]; then
    printf '%s\n' "$sysroot/$library"
    return
  fi
  manifest=$sysroot/lib/rustlib/multirust-channel-manifest.toml
  if [[ ! -e $manifest ]]; then
    say "this toolchain is not rustup's and says nothing of its source"
    return 3
  fi
  read -r url hash < <(
    awk -F'"' '/^\[/ { here = $0 == "[pkg.rust-src.target.\"*\"]" } here && /^xz_url/ { url = $2 } here && /^xz_hash/ { print url, $2 }' "$manifest"
  ) || die "$manifest names no source of the standard library"
  folder=$CACHE/rust-src/${hash:0:12}
  [[ -e $folder/.complete ]] || locked rust-src download_standard_library "$url" "$hash" "$folder" || return
  printf '%s\n' "$folder/$(basename "$url" .tar.xz)/rust-src/$library"
}

download_standard_library() { # download_standard_library URL SHA256 FOLDER
  [[ -e $3/.complete ]] && return # another run has just finished it
  rm -rf "$3"
  mkdir -p "$3"
  say "downloading $1"
  "$(find_python)" - "$@" <<'PY' || return
import hashlib
import io
import sys
import tarfile
import urllib.request

url, wanted, folder = sys.argv[1:]
try:
    with urllib.request.urlopen(url, timeout=60) as reply:
        content = reply.read()
except OSError as error:
    print(f"{url}: {error}", file=sys.stderr)
    sys.exit(3)
found = hashlib.sha256(content).hexdigest()
if found != wanted:
    sys.exit(f"{url} has the SHA-256 {found}, and the toolchain's manifest names {wanted}")
tarfile.open(fileobj=io.BytesIO(content)).extractall(folder)
PY
  touch "$3/.complete"
}
