#!/usr/bin/env bash
# Usage: scripts/demo.sh [CT.nii.gz [LABEL.nii.gz]] [--label FILE] [--out DIR] [--repository DIR]
# From a fresh clone to a spleen on the screen: installs and builds what is missing, serves both models with stock Triton on
# free ports of this machine, sends one CT volume over shared memory, and writes mask and contour (NIfTI in the scan's own
# geometry) and a picture into DIR (build/demo/NAME). Then the server is stopped. Without a CT a synthetic phantom is segmented.
# The network is a demonstration, trained on synthetic data: not for clinical use. --repository serves models of your own.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$ROOT/scripts/lib/environments.sh"
source "$ROOT/scripts/lib/build.sh"
source "$ROOT/scripts/lib/model.sh"
source "$ROOT/scripts/lib/server.sh"

usage="usage: scripts/demo.sh [CT.nii.gz [LABEL.nii.gz]] [--label FILE] [--out DIR] [--repository DIR]"
files=() label='' out='' repository=''
while (($#)); do
  case $1 in
    -h | --help) sed -n '2,/^source/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;;
    --label | --out | --repository)
      [[ -n ${2:-} ]] || die "$1 needs a value. $usage"
      printf -v "${1#--}" '%s' "$2"
      shift 2
      ;;
    -*) die "unknown option '$1'. $usage" ;;
    *) files+=("$1"); shift ;;
  esac
done
((${#files[@]} <= 2)) || die "found ${#files[@]} files, accepted are a CT and its label. $usage"
label=${label:-${files[1]:-}}
[[ -z $label || ${#files[@]} -gt 0 ]] || die "a label needs its CT. $usage"
for file in "${files[@]}" ${label:+"$label"}; do [[ -f $file ]] || die "no such file: $file"; done
if [[ -z $repository ]]; then
  [[ -e $TRAINED_MODEL ]] || die "the demonstration network is missing: $TRAINED_MODEL belongs to the repository"
elif [[ ! -d $repository ]]; then
  die "no such model repository: $repository"
fi

# A folder for each case: the next one leaves it alone.
case=phantom
if ((${#files[@]})); then case=$(basename "${files[0]}"); fi
case=${case%.gz}
out=${out:-$ROOT/build/demo/${case%.nii}}
notice="Demonstration network, trained on synthetic data. Not for clinical use."
[[ -z $repository ]] || notice="Network of $(basename "$repository"). Not for clinical use."
client=(env PYTHONPATH="$ROOT/scripts" PYTHONDONTWRITEBYTECODE=1 "$(environment_dir client)/bin/python" -m demo)
options=(--cache "$CACHE" --out "$out" --notice "$notice" ${files:+--ct "${files[0]}"} ${label:+--label "$label"})

say "$notice"
# Say everything that will be needed before the first byte is downloaded.
need_platform
need_rust
environments=(serve client cuda)
if own_pytorch_backend_needed; then environments+=(libtorch); fi
announce_environments "${environments[@]}"
announce_builds
install_environments "${environments[@]}"
((${#files[@]} == 0)) || "${client[@]}" check "${options[@]}"

say "Building"
build_backends >&2
if [[ -z $repository ]]; then
  repository=$ROOT/build/model_repository
  write_model_repository "$repository"
fi

locate_triton
mkdir -p "$out"
log=$out/tritonserver.log
SERVER=''
trap 'if [[ -n $SERVER ]]; then stop_server "$SERVER"; fi; rm -f "$ERRORS"' EXIT
trap 'exit 130' INT TERM
read -r http grpc metrics < <(free_ports 8000 8001 8002)
say "Starting Triton on 127.0.0.1:$http"
start_server "$repository" "$http" "$grpc" "$metrics" >"$log" 2>&1
if ! failure=$(wait_until_ready "$SERVER" "$http" 180 2>&1); then
  tail -n 20 "$log" >&2
  die "${failure#error: } (the lines above are the end of $log)"
fi

"${client[@]}" run "${options[@]}" --url "127.0.0.1:$http"
say "Stopping Triton"
