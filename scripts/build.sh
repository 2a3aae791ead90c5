#!/usr/bin/env bash
# Builds both backends into build/backends, which it prints. A second call only rebuilds what changed.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$ROOT/scripts/lib/environments.sh"
source "$ROOT/scripts/lib/build.sh"

own_pytorch_backend_needed && ensure_environments libtorch
build_backends >&2
printf '%s\n' "$BACKENDS"
