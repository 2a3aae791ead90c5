#!/usr/bin/env bash
# Usage: scripts/serve.sh [--repository DIR] [--http PORT] [--grpc PORT] [--metrics PORT] [-- TRITON_OPTION..]
# From a fresh clone to a running stock tritonserver with spleen_seg and segmentation_3d, on this machine only.
# Installs and builds what is missing, waits until the server and all its models are ready, stops on Ctrl-C or SIGTERM.
# Ports: 8000, 8001 and 8002 where they are free, other free ones else; one that is given has to be free. TRITON_HOME names an
# installed Triton to use.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$ROOT/scripts/lib/environments.sh"
source "$ROOT/scripts/lib/build.sh"
source "$ROOT/scripts/lib/model.sh"
source "$ROOT/scripts/lib/server.sh"

usage="usage: scripts/serve.sh [--repository DIR] [--http PORT] [--grpc PORT] [--metrics PORT] [-- TRITON_OPTION..]"
repository='' http=8000 grpc=8001 metrics=8002
declare -A given=()
while (($#)); do
  case $1 in
    -h | --help) say "$usage"; exit ;;
    --) shift; break ;;
    --repository | --http | --grpc | --metrics)
      [[ -n ${2:-} ]] || die "$1 needs a value. $usage"
      printf -v "${1#--}" '%s' "$2"
      given[${1#--}]=1
      shift 2
      ;;
    *) die "unknown option '$1'. $usage" ;;
  esac
done

for name in http grpc metrics; do
  [[ ${!name} =~ ^[0-9]{1,5}$ ]] && ((10#${!name} >= 1 && 10#${!name} <= 65535)) ||
    die "--$name is '${!name}'; accepted is a port from 1 to 65535"
  printf -v "$name" '%d' "$((10#${!name}))"
done
for pair in "http grpc" "http metrics" "grpc metrics"; do
  read -r name other <<<"$pair"
  [[ ${!name} != "${!other}" ]] || die "--$name and --$other are both ${!name}; accepted are different ports"
done
for name in http grpc metrics; do
  [[ -z ${given[$name]:-} ]] || ! port_answers "${!name}" || die "--$name ${!name}: port ${!name} is in use; accepted is a free one"
done
[[ -z $repository || -d $repository ]] || die "no such model repository: $repository"

# Say everything that will be needed before the first byte is downloaded.
need_rust
environments=(serve cuda)
if own_pytorch_backend_needed; then environments+=(libtorch); fi
if [[ -z $repository ]]; then
  mapfile -t -O "${#environments[@]}" environments < <(model_environments)
fi
announce_environments "${environments[@]}"
announce_builds
install_environments "${environments[@]}"
build_backends >&2
if [[ -z $repository ]]; then
  repository=$ROOT/build/model_repository
  write_model_repository "$repository"
fi

locate_triton
read -r -a free < <(free_ports "$http" "$grpc" "$metrics")
for name in http grpc metrics; do
  if [[ ${free[0]} != "${!name}" ]]; then
    [[ -z ${given[$name]:-} ]] || die "--$name ${!name}: port ${!name} is in use; accepted is a free one"
    say "Port ${!name} is in use, taking ${free[0]} ($name)"
    printf -v "$name" '%s' "${free[0]}"
  fi
  free=("${free[@]:1}")
done
server=''
stopping="Stopping tritonserver. Open connections can hold it up to 30 s (--exit-timeout-secs), whatever else is pressed"
trap 'trap "" INT TERM; if [[ -n $server ]]; then say "$stopping"; stop_server "$server"; say "Stopped"; fi; exit 0' INT TERM
trap 'if [[ -n $server ]]; then stop_server "$server"; fi; rm -f "$ERRORS"' EXIT

start_server "$repository" "$http" "$grpc" "$metrics" "$@"
server=$SERVER
wait_until_ready "$server" "$http" 180

say ""
while IFS= read -r line; do say "warning: not ready: $line"; done < <(models_not_ready "$http")
say "Ready: HTTP 127.0.0.1:$http, gRPC 127.0.0.1:$grpc, metrics 127.0.0.1:$metrics. Ctrl-C stops it. Try, in another terminal:"
say ""
# Counted windows and a wide margin: with a large network a request takes seconds, so that perf_analyzer's windows of 5 s hold one or two,
# or none, and it gives up on the first use of a busy machine. For numbers to publish there is scripts/bench.sh.
printf '%s -m spleen_seg -u localhost:%s --input-data zero --shape INPUT0:512,512,114 --shared-memory system %s\n' \
  "$ROOT/scripts/perf_analyzer.sh" "$http" "--measurement-mode count_windows --measurement-request-count 3 --stability-percentage 50"
if ((http != 8000)); then printf '%s --url localhost:%s ..\n' "$ROOT/scripts/segment.py" "$http"; fi
say ""
status=0
wait "$server" || status=$?
server=''
die "tritonserver ended by itself (exit code $status)"
