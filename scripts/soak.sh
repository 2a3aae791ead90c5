#!/usr/bin/env bash
# Usage: scripts/soak.sh [--long HOURS] [--out FILE]
# Eight clients at a stock Triton on this machine: HTTP, gRPC, asyncio and shared memory, three models, one request in ten bad, every answer
# compared with the serial one to the bit. Without --long one round of 2,000 requests, some minutes; with it as many rounds as fit into
# the hours, one line of progress each. Ends with a few lines, and all figures in FILE (build/soak.json). Fails if anything was wrong,
# lost or kept. Installs and builds what is missing.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$ROOT/scripts/lib/environments.sh"
source "$ROOT/scripts/lib/build.sh"
source "$ROOT/scripts/lib/server.sh"

out=$ROOT/build/soak.json arguments=()
while (($#)); do
  case $1 in
    -h | --help) sed -n '2,/^source/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;;
    --long | --out) ;;
    *) die "unknown argument '$1'. usage: scripts/soak.sh [--long HOURS] [--out FILE]" ;;
  esac
  [[ -n ${2:-} ]] || die "$1 needs a value. usage: scripts/soak.sh [--long HOURS] [--out FILE]"
  if [[ $1 == --out ]]; then out=$2; else arguments+=(--long "$2"); fi
  shift 2
done

environments=(serve test cuda)
if own_pytorch_backend_needed; then environments+=(libtorch); fi
ensure_environments "${environments[@]}"
build_backends >&2
locate_triton
export SPLEENSEG_BACKENDS=$BACKENDS SPLEENSEG_TRITON=$TRITON_SERVER SPLEENSEG_TRITON_LIBRARIES=$TRITON_LIBRARIES
export SPLEENSEG_STOCK_BACKENDS=$TRITON_STOCK_BACKENDS PYTHONDONTWRITEBYTECODE=1
exec "$(environment_dir test)/bin/python" -W ignore::UserWarning "$ROOT/tests/e2e/soak.py" --out "$out" "${arguments[@]}"
