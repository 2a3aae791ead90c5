# A stock tritonserver: where it is, and starting, watching and stopping it.
# shellcheck shell=bash

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

free_ports() { # free_ports PREFERRED.. : each of them if it is free, else any free one
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
# gets exactly one signal: that of stop_server.
start_server() { # start_server REPOSITORY HTTP GRPC METRICS [TRITON_OPTION..]
  local repository=$1 http=$2 grpc=$3 metrics=$4
  shift 4
  # Huge pages for the network's tensors, where the kernel gives them: torchscript_backend/README.md, "Speed and results".
  THP_MEM_ALLOC_ENABLE=${THP_MEM_ALLOC_ENABLE:-1} LD_LIBRARY_PATH=$TRITON_LIBRARIES${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} setsid "$TRITON_SERVER" \
    --model-repository="$repository" --backend-directory="$BACKENDS" \
    --http-address=127.0.0.1 --http-port="$http" \
    --grpc-address=127.0.0.1 --grpc-port="$grpc" \
    --metrics-address=127.0.0.1 --metrics-port="$metrics" "$@" &
  # shellcheck disable=SC2034 # for the caller
  SERVER=$!
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
    kill -0 "$1" 2>/dev/null || die "tritonserver ended before it was ready; its last lines above say why"
    ((SECONDS < deadline)) || die "tritonserver was not ready after $3 s"
    sleep 0.5
  done
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
