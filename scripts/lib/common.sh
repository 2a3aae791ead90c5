# Shared by all scripts: messages, checks, and the cache folder. Source it; it does nothing by itself.
# shellcheck shell=bash

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CACHE=${TRITON_SPLEENSEG_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/triton-spleenseg}

# Everything but a script's result goes to stderr, so that results can be captured.
say() { printf '%s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

need() { # need COMMAND HOW_TO_GET_IT
  command -v "$1" >/dev/null || die "'$1' is not installed. $2"
}

# The wheels that carry Triton are built for exactly this kind of machine; say so before any download.
need_platform() {
  [[ $(uname -sm) == "Linux x86_64" ]] ||
    die "this is $(uname -sm); the Triton from PyPI exists for Linux x86_64 only"
  local glibc
  glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2) || true
  [[ -n $glibc ]] || die "this system has no glibc; the Triton from PyPI needs glibc 2.35 or newer"
  [[ $(printf '%s\n' 2.35 "$glibc" | sort -V | head -n1) == 2.35 ]] ||
    die "glibc is $glibc; the Triton from PyPI needs 2.35 or newer (Debian 12, Ubuntu 22.04)"
}

# The locks hold files for Python 3.11, and the Python backend's stub of that version is the one tested.
find_python() {
  local candidate
  for candidate in ${SPLEENSEG_PYTHON:+"$SPLEENSEG_PYTHON"} python3.11 python3 python; do
    if [[ $("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) == 3.11 ]]; then
      command -v "$candidate"
      return
    fi
  done
  die "no Python 3.11 found. Install it (Debian 12: apt-get install python3.11 python3.11-venv; elsewhere: pyenv install 3.11)" \
    "or name one with SPLEENSEG_PYTHON=/path/to/python3.11"
}

need_rust() {
  need cargo "Install Rust (stable) from https://rustup.rs"
  local version
  version=$(cargo --version | awk '{ print $2 }')
  [[ $(printf '1.88.0\n%s\n' "$version" | sort -V | head -n 1) == 1.88.0 ]] || die "cargo is $version; 1.88 or newer is needed: rustup update stable"
  need cc "A C compiler links Rust code. Debian, Ubuntu: apt-get install gcc"
}

need_disk() { # need_disk MEGABYTES WHAT
  mkdir -p "$CACHE" || die "cannot create the cache folder $CACHE; set TRITON_SPLEENSEG_CACHE to a writable one"
  local free
  free=$(df -Pm "$CACHE" | awk 'NR == 2 { print $4 }')
  ((free >= $1)) ||
    die "$2 needs $1 MB in $CACHE, which has $free MB free; set TRITON_SPLEENSEG_CACHE to a folder with more room"
}

hash_of() { # hash_of FILE.. : short and stable name for their content
  cat "$@" | sha256sum | cut -c1-12
}

# Runs COMMAND with its output in LOG, telling every few seconds that it is alive and how much it has put into FOLDER.
# On failure the end of the log is shown.
with_progress() { # with_progress LABEL FOLDER LOG COMMAND..
  local label=$1 folder=$2 log=$3 began=$SECONDS step=15 pid status=0
  shift 3
  [[ -t 2 ]] && step=2
  "$@" >"$log" 2>&1 &
  pid=$!
  # shellcheck disable=SC2064
  trap "kill $pid 2>/dev/null || true; exit 130" INT TERM
  local next=$step
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    ((SECONDS - began < next)) && continue
    ((next += step))
    progress_line "  $label: $((SECONDS - began)) s, $(du -sm "$folder" 2>/dev/null | cut -f1) MB"
  done
  wait "$pid" || status=$?
  trap - INT TERM
  progress_end
  if ((status)); then
    tail -n 25 "$log" >&2
    die "$label failed; the whole log is in $log. Packages come from PyPI: check the network, or pip's index settings"
  fi
  say "  $label: done in $((SECONDS - began)) s"
}

# Starts COMMAND in the background, in a process group of its own; all of it ends with this script at the latest. BACKGROUND is its id.
BACKGROUND_GROUPS=()
in_background() { # in_background COMMAND..
  set -m
  "$@" </dev/null &
  set +m
  BACKGROUND=$!
  BACKGROUND_GROUPS+=("$BACKGROUND")
  trap 'for group in "${BACKGROUND_GROUPS[@]}"; do kill -- "-$group" 2>/dev/null || true; done' EXIT
}

PROGRESS_OPEN=
progress_line() { # one line that is rewritten on a terminal, and appended elsewhere
  if [[ -t 2 ]]; then
    printf '\r\033[K%s' "$1" >&2
    PROGRESS_OPEN=1
  else
    say "$1"
  fi
}
progress_end() {
  if [[ -n $PROGRESS_OPEN ]]; then printf '\r\033[K' >&2; fi
  PROGRESS_OPEN=
}

# Runs COMMAND while holding the lock NAME, so that two scripts started at once do not build the same thing twice. LOCK_HOLDER
# says who else may have it.
locked() { # locked NAME COMMAND..
  local name=$1
  shift
  mkdir -p "$CACHE/locks"
  (
    exec 9>"$CACHE/locks/$name"
    if ! flock -n 9; then
      say "waiting for ${LOCK_HOLDER:-another run of these scripts} ($name)"
      local began=$SECONDS
      until flock -w 15 9; do say "  still waiting for it: $((SECONDS - began)) s"; done
    fi
    "$@"
  )
}
