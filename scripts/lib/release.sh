# The object that people install: for an old glibc, and the same bytes wherever it is built.
# shellcheck shell=bash

# The oldest glibc that libtriton_spleenseg.so loads on: Ubuntu 20.04, Debian 11.
GLIBC_FLOOR=2.31
RELEASE_TARGET=x86_64-unknown-linux-gnu

# No path of this machine may reach the object: sources, the registry's copies and the standard library get fixed names.
# The build id is a hash of the content.
release_rustflags() {
  local flags=(
    "--remap-path-prefix=$ROOT=/triton-spleenseg"
    "--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
    "--remap-path-prefix=$(rustc --print sysroot)=/rust"
    -C link-arg=-Wl,--build-id=sha1
  )
  local IFS=$'\x1f'
  printf '%s' "${flags[*]}"
}

announce_release_build() {
  local target=${CARGO_TARGET_DIR:-$ROOT/target}
  [[ -e $target/$RELEASE_TARGET/dist/libtriton_spleenseg.so ]] ||
    say "To be compiled in $target: libtriton_spleenseg.so as it is released, some 2 min on 2 cores, 130 MB. Once only."
}

release_build() { # release_build CARGO_ARGUMENT.. : into RELEASE_FOLDER
  need_rust
  ensure_environments release cuda
  (
    cd "$ROOT"
    CARGO_ENCODED_RUSTFLAGS=$(release_rustflags)
    # zig and its cargo wrapper would otherwise fill folders of their own in the user's home.
    export CARGO_ENCODED_RUSTFLAGS ZIG_GLOBAL_CACHE_DIR=$CACHE/zig CARGO_ZIGBUILD_CACHE_DIR=$CACHE/zig/cargo
    export CARGO_INCREMENTAL=0
    unset RUSTFLAGS
    PATH=$(environment_dir release)/bin:$PATH \
      cargo zigbuild --profile dist --locked --target "$RELEASE_TARGET.$GLIBC_FLOOR" "$@"
  ) >&2 || return
  RELEASE_FOLDER=${CARGO_TARGET_DIR:-$ROOT/target}/$RELEASE_TARGET/dist
}

build_release_object() { # build_release_object [CARGO_ARGUMENT..] : sets RELEASE_OBJECT
  release_build --lib --package triton-spleenseg "$@" || return
  RELEASE_OBJECT=$RELEASE_FOLDER/libtriton_spleenseg.so
}

glibc_needed() { # glibc_needed FILE.. : the newest glibc that any of them asks for
  readelf --version-info --wide "$@" | grep -oE 'GLIBC_[0-9]+(\.[0-9]+)+' | sort -Vu | tail -n 1 | cut -d_ -f2
}

# The libraries of libtorch that libtriton_pytorch.so needs, and theirs: it looks for them beside itself.
copy_libtorch() { # copy_libtorch SITE_PACKAGES FOLDER
  local found
  while IFS= read -r found; do
    cp -L -- "$found" "$2/"
  done < <(ldd "$2/libtriton_pytorch.so" | awk -v from="$1/" 'index($3, from) == 1 { print $3 }')
}
