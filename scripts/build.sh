#!/usr/bin/env bash
# Usage: scripts/build.sh [--release | --cli]
# Builds both backends into build/backends, which it prints. A second call only rebuilds what changed.
# --release builds libtriton_spleenseg.so alone as it is released (glibc 2.31, reproducible) and prints where it is.
# --cli builds spleenseg-cli, the pipeline without a server, and prints where it is.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$ROOT/scripts/lib/environments.sh"
source "$ROOT/scripts/lib/build.sh"
source "$ROOT/scripts/lib/release.sh"

case ${1:-} in
  '') ;;
  -h | --help) sed -n '2,/^source/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;;
  --release)
    announce_environments release cuda
    announce_release_build
    install_environments release cuda
    build_release_object
    printf '%s\n' "$RELEASE_OBJECT"
    exit
    ;;
  --cli)
    announce_environments libtorch
    announce_torchscript_build cli
    install_environments libtorch
    build_cli >&2
    printf '%s\n' "$BINARIES/spleenseg-cli"
    exit
    ;;
  *) die "unknown argument '$1'. usage: scripts/build.sh [--release | --cli]" ;;
esac

environments=(cuda)
if own_pytorch_backend_needed; then environments+=(libtorch); fi
announce_environments "${environments[@]}"
announce_builds
install_environments "${environments[@]}"
build_backends >&2
printf '%s\n' "$BACKENDS"
