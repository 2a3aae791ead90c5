#!/usr/bin/env bash
# Usage: scripts/bench.sh [--quick] [--out DIR] [--report]
# Measures this backend against the Python backend with MONAI, both in stock Triton on this machine. Prints the tables and
# writes results.json, README.md and plots into DIR (docs/benchmarks), and from there the headline tables into the project's
# README. Some 25 minutes on 2 cores; --quick takes 5 and writes into build/bench/quick.
# Installs and builds what is missing. Wants a quiet machine. --report only writes the report of DIR/results.json again.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$ROOT/scripts/lib/environments.sh"
source "$ROOT/scripts/lib/build.sh"
source "$ROOT/scripts/lib/model.sh"
source "$ROOT/scripts/lib/server.sh"

usage="usage: scripts/bench.sh [--quick] [--out DIR] [--report]"
only_report=''
for argument in "$@"; do
  case $argument in
    -h | --help) say "$usage"; exit ;;
    --report) only_report=1 ;;
  esac
done

environments=(serve test plot cuda)
if [[ -z $only_report ]] && own_pytorch_backend_needed; then environments+=(libtorch); fi
ensure_environments "${environments[@]}"
if [[ -z $only_report ]]; then
  build_backends >&2
  ensure_random_model
fi
locate_triton

export SPLEENSEG_BACKENDS=$BACKENDS
export SPLEENSEG_TRITON=$TRITON_SERVER SPLEENSEG_TRITON_LIBRARIES=$TRITON_LIBRARIES
export SPLEENSEG_STOCK_BACKENDS=$TRITON_STOCK_BACKENDS SPLEENSEG_PERF_ANALYZER=$ROOT/scripts/perf_analyzer.sh
SPLEENSEG_NETWORK=$(random_model)
SPLEENSEG_PLOT_PYTHON=$(environment_dir plot)/bin/python
export SPLEENSEG_NETWORK SPLEENSEG_PLOT_PYTHON
export PYTHONPATH=$ROOT/scripts
exec "$(environment_dir test)/bin/python" -m bench "$@"
