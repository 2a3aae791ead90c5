#!/usr/bin/env bash
# Usage: scripts/setup.sh [ENVIRONMENT..]
# Installs the environments named (serve, libtorch, test, plot, client, client_test, lint, release, deploy, floor, below, cuda; default: serve libtorch cuda) into the cache folder.
# Nothing else on the machine is touched, and a second call does nothing. The other scripts call it by themselves.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$ROOT/scripts/lib/environments.sh"

case ${1:-} in -h | --help) sed -n '2,/^source/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;; esac
(($#)) || set -- serve libtorch cuda
ensure_environments "$@"
for name in "$@"; do
  printf '%s %s\n' "$name" "$(environment_dir "$name")"
done
