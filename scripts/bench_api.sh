#!/usr/bin/env bash
# Usage: scripts/bench_api.sh [--quick] [--out DIR] [--report]
# Measures what triton_backend_api costs: the example `identity` beside a minimal backend in C, under the fake host and with
# nothing else in the process; `identity` and `threads` beside the same models on the Python backend, on stock Triton. Prints the
# tables and writes api.json and api.md into DIR (docs/benchmarks). Some 3 minutes on 2 cores; --quick takes 1.
# Installs and builds what is missing. Wants a quiet machine. --report only writes the report of DIR/api.json again.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$ROOT/scripts/lib/environments.sh"
source "$ROOT/scripts/lib/build.sh"
source "$ROOT/scripts/lib/server.sh"

for argument in "$@"; do
  case $argument in
    -h | --help) say "usage: scripts/bench_api.sh [--quick] [--out DIR] [--report]"; exit ;;
  esac
done
ensure_environments serve test
locate_triton
work=$ROOT/build/bench_api
mkdir -p "$work" "$BACKENDS"
if [[ " $* " != *" --report "* ]]; then
  build_examples >&2
  cc -O2 -shared -fPIC -I "$ROOT/triton_backend_api/include" "$ROOT/benches/identity_c/identity.c" -o "$work/libidentity_c.so"
  say "Under the fake host: 1 min"
  (cd "$ROOT" && cargo bench --quiet --locked -p triton_fake_host --bench cost -- \
    "$work/libidentity_c.so" "$EXAMPLES/identity/libtriton_identity.so") >"$work/cost.json"
fi

export SPLEENSEG_BACKENDS=$BACKENDS SPLEENSEG_EXAMPLES=$EXAMPLES SPLEENSEG_COST=$work/cost.json
export SPLEENSEG_TRITON=$TRITON_SERVER SPLEENSEG_TRITON_LIBRARIES=$TRITON_LIBRARIES
export SPLEENSEG_STOCK_BACKENDS=$TRITON_STOCK_BACKENDS SPLEENSEG_PERF_ANALYZER=$ROOT/scripts/perf_analyzer.sh
export PYTHONPATH=$ROOT/scripts
exec "$(environment_dir test)/bin/python" -m bench.api "$@"
