# A stock tritonserver: where it is, and starting, watching and stopping it.
# shellcheck shell=bash

ERRORS=''

# Sets TRITON_SERVER (the executable), TRITON_LIBRARIES (its library path) and TRITON_STOCK_BACKENDS.
# TRITON_HOME, an installation such as /opt/tritonserver, goes before the one from PyPI.
locate_triton() {
  if [[ -n ${TRITON_HOME:-} ]]; then
    TRITON_SERVER=$TRITON_HOME/bin/tritonserver
    TRITON_LIBRARIES=$TRITON_HOME/lib
    TRITON_STOCK_BACKENDS=$TRITON_HOME/backends
    [[ -x $TRITON_SERVER ]] || die "TRITON_HOME is $TRITON_HOME, but there is no $TRITON_SERVER"
  else
    local packages
    packages=$(environment_packages serve)
    TRITON_SERVER=$packages/pytriton/tritonserver/bin/tritonserver
    TRITON_LIBRARIES=$packages/nvidia_pytriton.libs
    TRITON_STOCK_BACKENDS=$packages/pytriton/tritonserver/backends
    # pip does not keep the executable bit of a file that is package data.
    [[ -x $TRITON_SERVER ]] || chmod +x "$TRITON_SERVER"
  fi
}

port_answers() { # port_answers PORT : whether something on this machine listens there
  (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

free_ports() { # free_ports PREFERRED.. : each of them if it is free, else any free one, in one line
  "$(environment_dir serve)/bin/python" - "$@" <<'PY'
import socket, sys
held = []
for port in sys.argv[1:]:
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind(("127.0.0.1", int(port)))
    except OSError:
        s.bind(("127.0.0.1", 0))
    held.append(s)
print(*(s.getsockname()[1] for s in held))
PY
}

# Starts Triton on this machine only and sets SERVER to its process. A session of its own keeps Ctrl-C from it, so that it
# gets exactly one signal: that of stop_server. Its errors until it serves are kept in ERRORS too, for startup_failure.
start_server() { # start_server REPOSITORY HTTP GRPC METRICS [TRITON_OPTION..]
  local repository=$1 http=$2 grpc=$3 metrics=$4
  shift 4
  ERRORS=$(mktemp)
  local errors
  exec {errors}> >(exec setsid sed -u -e '/"Started Metrics Service/,$b' -e "/^E[0-9]/w $ERRORS" -e "/^error: /w $ERRORS" -e "/: unrecognized option/w $ERRORS" >&2)
  ERRORS_READER=$!
  # Huge pages for the network's tensors, where the kernel gives them: torchscript_backend/README.md, "Speed and results".
  THP_MEM_ALLOC_ENABLE=${THP_MEM_ALLOC_ENABLE:-1} LD_LIBRARY_PATH=$TRITON_LIBRARIES${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} setsid "$TRITON_SERVER" \
    --model-repository="$repository" --backend-directory="$BACKENDS" \
    --http-address=127.0.0.1 --http-port="$http" \
    --grpc-address=127.0.0.1 --grpc-port="$grpc" \
    --metrics-address=127.0.0.1 --metrics-port="$metrics" "$@" 2>&"$errors" {errors}>&- &
  # shellcheck disable=SC2034 # for the caller
  SERVER=$!
  exec {errors}>&-
}

# Why a server has ended before it was ready: the models that failed to load, else all its errors but what it says on every machine without a GPU.
startup_failure() {
  local lines joined
  # Its last lines may still be on their way; a process that it left may hold the pipe open.
  for _ in {1..20}; do
    kill -0 "$ERRORS_READER" 2>/dev/null || break
    sleep 0.1
  done
  # Without time and place in Triton's source, and the quotes around it.
  mapfile -t lines < <({ grep '^E.*failed to load' "$ERRORS" || grep -vF CudaDriverHelper "$ERRORS"; } |
    sed -E -e 's/^E[0-9]+ [^]]*\] //' -e 's/^(error|[^ ]*tritonserver): //' -e 's/^"(.*)"$/\1/' -e 's/\\"/"/g')
  printf -v joined '%s; ' "${lines[@]:-its last lines above say why}"
  printf '%s\n' "${joined%; }"
}

# The models that a request needs and cannot have, one a line: spleen_seg, and the networks that models of our backend call.
models_not_ready() { # models_not_ready HTTP_PORT
  "$(environment_dir serve)/bin/python" - "$1" <<'PY' || true
import json, sys, urllib.request
def ask(path, data=None):
    with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/v2/{path}", data, timeout=10) as reply:
        return json.load(reply)
try:
    ready = {entry["name"] for entry in ask("repository/index", b"{}") if entry.get("state") == "READY"}
    configs = [ask(f"models/{name}/config") for name in sorted(ready)]
except (OSError, ValueError):  # an option of the user's has closed it
    sys.exit()
if "spleen_seg" not in ready:
    print("spleen_seg")
callers = {}
for config in configs:
    if config.get("backend") == "spleenseg":
        network = config.get("parameters", {}).get("segmentation_model", {}).get("string_value", "segmentation_3d")
        callers.setdefault(network, []).append(config["name"])
for network, names in callers.items():
    if network not in ready:
        print(f"{network}, which {' and '.join(names)} call{'s' if len(names) == 1 else ''}")
PY
}

http_ready() { # http_ready PORT : whether the server and all its models are ready
  local status
  {
    exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf 'GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
    read -r -t 5 status <&3
    exec 3>&-
  } 2>/dev/null
  [[ $status == *" 200 "* ]]
}

wait_until_ready() { # wait_until_ready PID HTTP_PORT SECONDS
  local deadline=$((SECONDS + $3))
  until http_ready "$2"; do
    kill -0 "$1" 2>/dev/null || die "tritonserver ended before it was ready: $(startup_failure)"
    ((SECONDS < deadline)) || die "tritonserver was not ready after $3 s"
    sleep 0.5
  done
  rm -f "$ERRORS"
}

stop_server() { # stop_server PID : asks, waits for running requests, and only then forces
  kill -TERM "$1" 2>/dev/null || return 0
  for _ in {1..80}; do
    kill -0 "$1" 2>/dev/null || return 0
    sleep 0.5
  done
  say "tritonserver did not end within 40 s; killing it"
  kill -KILL "$1" 2>/dev/null || true
}
