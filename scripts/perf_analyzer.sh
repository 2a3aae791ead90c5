#!/usr/bin/env bash
# Runs perf_analyzer with the arguments given. It comes with Triton's client from PyPI and needs two libraries on its path.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$ROOT/scripts/lib/environments.sh"

ensure_environments serve
serve=$(environment_dir serve)
export LD_LIBRARY_PATH=$serve/lib/perf_analyzer${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$serve/bin/perf_analyzer" "$@"
