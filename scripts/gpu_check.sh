#!/usr/bin/env bash
# Usage: ./gpu_check.sh [--parts PART,..] [--cpu] [OUTPUT_FOLDER]
# Checks the GPU path on this machine: Linux x86-64, an NVIDIA GPU, for most parts a Python with numpy, for some PyTorch. No network is
# used, and nothing outside the output folder (default: gpu_check_results) stays. It ends within 10 minutes, and says of each part: passed, failed,
# or skipped and what is missing for it. Run it in the folder that the file of scripts/gpu_bundle.sh unpacks to.
# Exit code: 0 all that could be checked passed; 1 something failed; 2 nothing of the GPU could be checked.
# The Python is the one that GPU_CHECK_PYTHON names, else python3 or one below /opt, whichever has PyTorch. --cpu tries the check itself on a machine without a GPU.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# The first that has most of what the parts need: environments are not always on PATH.
find_python() {
  local modules candidate
  for modules in "('numpy', 'torch')" "('numpy',)" "()"; do
    for candidate in python3 /opt/*/.venv/bin/python3 /opt/*/bin/python3; do
      if "$candidate" -c "import sys, importlib.util as u; sys.exit(sys.version_info < (3, 9) or not all(map(u.find_spec, $modules)))" 2>/dev/null; then
        printf '%s\n' "$candidate"
        return
      fi
    done
  done
  printf 'python3\n'
}
nothing() {
  printf 'skipped: %s\n' "$*" >&2
  exit 2
}
case ${1:-} in -h | --help)
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  exit
  ;;
esac
python=${GPU_CHECK_PYTHON:-$(find_python)}
[[ -d $here/triton ]] || nothing "an unpacked bundle ($here is none). scripts/gpu_bundle.sh makes one, on a machine with a network"
command -v "$python" >/dev/null || nothing "$python. GPU_CHECK_PYTHON names another Python"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' ||
  nothing "Python 3.9 or newer ($python is $("$python" -V 2>&1)). GPU_CHECK_PYTHON names another"
status=0
# The check ends in time by itself; this is for one that cannot.
PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1 \
  timeout --kill-after=10 570 "$python" -m gpu_check --bundle "$here" "$@" || status=$?
case $status in
  0 | 1 | 2) exit "$status" ;;
esac
echo "failed: the check itself ended with code $status; what is above is what was done" >&2
exit 1
