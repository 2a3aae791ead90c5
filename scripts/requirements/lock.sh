#!/usr/bin/env bash
# Rewrites the lock files beside it from the .in files. Needs uv (pip install uv); only maintainers run it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
command -v uv >/dev/null || { echo "lock.sh: uv is not installed; get it with: pip install uv" >&2; exit 1; }

compile() { # compile IN.. : exact pins with the hashes of every file of that release
  uv pip compile --quiet --python-version 3.11 --python-platform x86_64-manylinux_2_35 \
    --generate-hashes --no-annotate --no-header "$@"
}

# pip would choose between tritonclient's platform wheel and its pure Python one by tag. Only the platform wheel carries
# perf_analyzer, so the lock lists that file's hash alone.
only_file() { # only_file NAME HASH < lock : keeps HASH as the one allowed file of NAME
  awk -v name="$1==" -v hash="$2" '
    index($0, name) == 1 { print; print "    --hash=sha256:" hash; skip = 1; next }
    skip && /^ +--hash/ { next }
    { skip = 0; print }'
}
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
python3 -m pip download --quiet --no-deps --only-binary :all: --platform manylinux1_x86_64 --python-version 3.11 \
  --dest "$wheels" tritonclient==2.50.0
hash=$(sha256sum "$wheels"/tritonclient-2.50.0-*manylinux1_x86_64.whl | cut -d' ' -f1)

write() { # write NAME : stdin becomes NAME.lock
  { echo "# Written by scripts/requirements/lock.sh. Do not edit."; cat; } >"$1.lock"
}
{ compile serve.in | only_file tritonclient "$hash"; compile --no-deps serve.nodeps.in; } | write serve
compile --no-deps libtorch.nodeps.in | write libtorch
compile --no-deps cuda.nodeps.in | write cuda
compile test.in | only_file tritonclient "$hash" | write test
compile plot.in | write plot
compile client.in | only_file tritonclient "$hash" | write client
compile client_test.in | only_file tritonclient "$hash" | write client_test
{ compile lint.in; compile --no-deps lint.nodeps.in; } | write lint
{ compile release.in; compile --no-deps release.nodeps.in; } | write release
{ compile deploy.in; compile --no-deps deploy.nodeps.in; } | write deploy
for name in floor below; do compile --no-deps $name.nodeps.in | write $name; done
