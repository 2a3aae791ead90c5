# Builds the two backends and lays them out as Triton expects: BACKENDS/<name>/libtriton_<name>.so
# The examples of triton_backend_api go into a folder of their own, EXAMPLES, in the same way.
# shellcheck shell=bash

BACKENDS=$ROOT/build/backends
BINARIES=$ROOT/build/bin
EXAMPLES=$ROOT/build/examples

# torch-sys takes minutes to compile, so its target folder lives in the cache, shared by all checkouts that would compile
# the same: this compiler, this torch-sys, this libtorch. All else cargo sees by itself.
torchscript_target() {
  local key
  key=$({ rustc -vV; grep -A4 '^name = "torch-sys"' "$ROOT/Cargo.lock"; cat "$(environment_lock libtorch)"; } | hash_of -)
  printf '%s/target/torchscript-%s\n' "$CACHE" "$key"
}

# An installation in TRITON_HOME may have NVIDIA's own PyTorch backend; then ours is not needed.
own_pytorch_backend_needed() { [[ ! -e ${TRITON_HOME:-/nonexistent}/backends/pytorch/libtriton_pytorch.so ]]; }

# torchscript_backend alone and as a part of spleenseg-cli are two builds with one name: after the one, the other is compiled anew.
torchscript_built_for() { cat "$(torchscript_target)/built_for" 2>/dev/null || true; }

TORCHSCRIPT_ANNOUNCED=''
announce_torchscript_build() { # announce_torchscript_build [backend | cli] : says once what compiling the bindings and that takes
  need c++ "A C++ compiler builds the bindings to libtorch. Debian, Ubuntu: apt-get install g++"
  [[ -z $TORCHSCRIPT_ANNOUNCED ]] || return 0
  TORCHSCRIPT_ANNOUNCED=1
  local target
  target=$(torchscript_target)
  if [[ ! -d $target ]]; then
    say "To be compiled in $CACHE: the bindings to libtorch, some 3 min on 2 cores, 500 MB. Once only."
    need_disk 500 "compiling torchscript_backend"
  fi
  case ${1:-} in
    cli) [[ -e $target/release/spleenseg-cli ]] || say "To be compiled in $target: spleenseg-cli, some 1 min on 2 cores, 100 MB. Once only." ;;
    backend) [[ $(torchscript_built_for) != cli ]] || say "To be compiled anew: libtriton_pytorch.so, some 20 s on 2 cores; spleenseg-cli was built in its place." ;;
  esac
}

# Runs what compiles torchscript_backend, or takes what was compiled, while no other checkout does so in the folder they share.
with_torchscript_target() { # with_torchscript_target COMMAND..
  locked "$(basename "$(torchscript_target)")" in_torchscript_target "$@"
}

in_torchscript_target() {
  torchscript_cargo_environment && cd "$ROOT" && "$@"
}

# Sets the variables that every cargo command on torchscript_backend needs.
torchscript_cargo_environment() {
  local torch
  torch=$(environment_packages libtorch)/torch
  export LIBTORCH=$torch
  CARGO_TARGET_DIR=$(torchscript_target)
  export CARGO_TARGET_DIR
  clean_of_other_checkouts
}

# Cargo takes what another checkout built in a folder for its own, unless its own sources are younger: so the members of the
# workspace, which are quick to compile, are removed where the folder last served another one.
clean_of_other_checkouts() {
  local built_by=$CARGO_TARGET_DIR/checkout profile members
  if [[ -d $CARGO_TARGET_DIR && $(cat "$built_by" 2>/dev/null) != "$ROOT" ]]; then
    members=$(cd "$ROOT" && cargo metadata --locked --no-deps --format-version 1 | grep -o '{"name":"[^"]*","version":"[^"]*","id"' | cut -d '"' -f 4) || return
    for profile in dev release; do
      # shellcheck disable=SC2046,SC2086 # lists
      (cd "$ROOT" && cargo clean --quiet --locked --profile "$profile" $(printf -- '-p %s ' $members)) || return
    done
  fi
  mkdir -p "$CARGO_TARGET_DIR" && printf '%s\n' "$ROOT" >"$built_by"
}

announce_spleenseg_build() {
  local target=${CARGO_TARGET_DIR:-$ROOT/target}
  [[ -e $target/release/libtriton_spleenseg.so ]] ||
    say "To be compiled in $target: libtriton_spleenseg.so, some 1 min on 2 cores, 200 MB. Once only."
}

announce_builds() {
  announce_spleenseg_build
  if own_pytorch_backend_needed; then announce_torchscript_build backend; fi
}

install_backend() { # install_backend NAME FILE [FOLDER] : replaces it in one step, since a running server may have it mapped
  local folder=${3:-$BACKENDS}/$1
  mkdir -p "$folder" && replace "$2" "$folder/libtriton_$1.so"
}

replace() { # replace FROM TO : in one step, also where another script does the same
  local new
  new=$(dirname "$2")/.new.$BASHPID
  cp "$1" "$new" && mv "$new" "$2"
}

# Every step says "|| return": a function that is called in a condition does not stop at a failing command by itself,
# and an object left from an earlier build must never pass for this one.
build_spleenseg() {
  need_rust
  (cd "$ROOT" && cargo build --release --locked --lib) || return
  install_backend spleenseg "${CARGO_TARGET_DIR:-$ROOT/target}/release/libtriton_spleenseg.so"
}

build_pytorch() {
  # A link of an earlier build; the object of one is replaced in one step, for a running server's sake.
  if [[ -L $BACKENDS/pytorch ]] || ! own_pytorch_backend_needed; then rm -rf "$BACKENDS/pytorch"; fi
  if ! own_pytorch_backend_needed; then
    mkdir -p "$BACKENDS" && ln -s "$TRITON_HOME/backends/pytorch" "$BACKENDS/pytorch"
    return
  fi
  need_rust
  announce_torchscript_build backend
  with_torchscript_target build_pytorch_there
}

# Its build script makes the object find the libtorch it was built with.
build_pytorch_there() {
  cargo build --release --locked -p torchscript_backend --lib || return
  printf 'backend\n' >"$CARGO_TARGET_DIR/built_for"
  install_backend pytorch "$CARGO_TARGET_DIR/release/libtriton_pytorch.so"
}

build_examples() {
  local source name
  need_rust
  (cd "$ROOT" && cargo build --release --locked -p triton_backend_api --examples) || return
  for source in "$ROOT"/triton_backend_api/examples/*.rs; do
    name=$(basename "$source" .rs)
    install_backend "$name" "${CARGO_TARGET_DIR:-$ROOT/target}/release/examples/lib$name.so" "$EXAMPLES" || return
  done
}

# The pipeline as one program, in BINARIES. It finds the libtorch it was built with.
build_cli() {
  need_rust
  announce_torchscript_build cli
  with_torchscript_target build_cli_there
}

build_cli_there() {
  cargo build --release --locked -p spleenseg_cli || return
  printf 'cli\n' >"$CARGO_TARGET_DIR/built_for"
  mkdir -p "$BINARIES" && replace "$CARGO_TARGET_DIR/release/spleenseg-cli" "$BINARIES/spleenseg-cli"
}

build_backends() { build_spleenseg && build_pytorch; }
