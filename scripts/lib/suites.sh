# The test suites and their counts. A suite that fails does not stop the next one, unless that one cannot run without it.
# shellcheck shell=bash

PASSED=0 FAILED=0 SKIPPED=0
SUMMARY=()

heading() { printf '\n== %s (%d s) ==\n' "$1" "$SECONDS"; }

count() { # count NAME PASSED FAILED SKIPPED
  ((PASSED += $2, FAILED += $3, SKIPPED += $4)) || true
  SUMMARY+=("$(printf '%-28s %5d passed %5d failed %5d skipped' "$@")")
}

# Runs COMMAND in the background, beside what follows. What it says and counts comes with `join`, so that nothing is interleaved.
beside() { # beside NAME COMMAND..
  BESIDE_NAME=$1 BESIDE=$(mktemp -d)
  shift
  touch "$BESIDE/counts"
  in_background run_beside "$@"
  BESIDE_PID=$BACKGROUND
}

run_beside() { # run_beside COMMAND..
  count() { printf '%s\t%d\t%d\t%d\n' "$@" >>"$BESIDE/counts"; }
  "$@" >"$BESIDE/log" 2>&1
  touch "$BESIDE/ended"
}

join() { # join : waits for what `beside` started
  local name passed failed skipped
  wait "$BESIDE_PID" || true
  heading "$BESIDE_NAME, beside it"
  cat "$BESIDE/log"
  while IFS=$'\t' read -r name passed failed skipped; do count "$name" "$passed" "$failed" "$skipped"; done <"$BESIDE/counts"
  [[ -e $BESIDE/ended ]] || count "$BESIDE_NAME, which broke off" 0 1 0
  rm -rf "$BESIDE"
}

check() { # check NAME COMMAND.. : one check that passes or fails as a whole
  local name=$1
  shift
  printf -- '-- %s\n' "$name"
  if "$@"; then count "$name" 1 0 0; else count "$name" 0 1 0; fi
}

# Counts what cargo test reports for each of its executables. No report at all is a failure: it did not compile.
run_cargo_tests() { # run_cargo_tests NAME CARGO_ARGUMENT..
  local name=$1 log status=0 passed failed skipped
  shift
  log=$(mktemp)
  "$@" 2>&1 | tee "$log" || status=$?
  read -r passed failed skipped < <(
    awk '/^test result: / { p += $4; f += $6; i += $8 } END { print p + 0, f + 0, i + 0 }' "$log"
  )
  rm -f "$log"
  if ((status && failed == 0)); then failed=1; fi
  if ((passed + failed == 0)); then failed=1; fi
  count "$name" "$passed" "$failed" "$skipped"
}

# Counts from pytest's own report file. A run that ends without one has failed. PYTEST_ENVIRONMENT names the one to run in.
run_pytest() { # run_pytest NAME FOLDER PYTEST_ARGUMENT..
  local name=$1 folder=$2 report status=0 passed failed skipped python
  shift 2
  python=$(environment_dir "${PYTEST_ENVIRONMENT:-test}")/bin/python
  report=$(mktemp)
  "$python" -m pytest "$folder" -ra --junitxml="$report" -o junit_family=xunit2 "$@" || status=$?
  read -r passed failed skipped < <("$python" - "$report" <<'PY'
import sys
import xml.etree.ElementTree as tree
try:
    suites = tree.parse(sys.argv[1]).getroot().iter("testsuite")
    n = {key: 0 for key in ("tests", "failures", "errors", "skipped")}
    for suite in suites:
        for key in n:
            n[key] += int(suite.get(key, 0))
    failed = n["failures"] + n["errors"]
    print(max(n["tests"] - failed - n["skipped"], 0), failed, n["skipped"])
except tree.ParseError:
    print(0, 1, 0)
PY
  )
  rm -f "$report"
  if ((status && failed == 0)); then failed=1; fi
  count "$name" "$passed" "$failed" "$skipped"
}

suite_lint() {
  check "cargo fmt" cargo fmt --all --check
  check "cargo fmt, fuzz targets" cargo fmt --check --manifest-path fuzz/Cargo.toml
  check "cargo clippy" cargo clippy --locked --all-targets -- -D warnings
  check "cargo clippy, emulated driver" cargo clippy --locked -p fake_driver --all-targets -- -D warnings
  check "cargo clippy, kernel_check" cargo clippy --locked -p kernel_check --all-targets -- -D warnings
  check "cargo clippy, races" cargo clippy --locked -p races --all-targets -- -D warnings
  check "cargo clippy, the CPU alone" cargo clippy --locked --no-default-features --features backend --lib -- -D warnings
  # Not part of the default members, for it needs libtorch; in release, where its C++ has to be compiled anyway.
  check "cargo clippy, torchscript" clippy_torchscript torchscript_backend
  check "cargo clippy, spleenseg-cli" clippy_torchscript spleenseg_cli
  check "cargo deny" cargo_deny
  check "cargo package" cargo_package
  # Known vulnerabilities come from databases on the network. Where one cannot be reached, its check is skipped.
  if advisory_database_reached; then check "cargo deny, advisories" cargo_deny_check advisories; else skip "cargo deny, advisories" "RustSec's database"; fi
  if pypi_vulnerabilities_reached; then check "pip-audit" pip_audit; else skip "pip-audit" "PyPI's vulnerabilities"; fi
}

skip() { # skip NAME WHAT_CANNOT_BE_REACHED
  printf -- '-- %s: skipped, %s cannot be reached\n' "$@"
  count "$1" 0 0 1
}

# The packages that others may use stand on their own: packed, unpacked and built, without anything of this repository.
cargo_package() {
  cargo package --quiet --locked --allow-dirty -p triton_backend_api -p triton_fake_host
}

clippy_torchscript() { # clippy_torchscript PACKAGE
  announce_torchscript_build
  with_torchscript_target cargo clippy --release --locked -p "$1" --all-targets -- -D warnings
}

# Licences, sources and banned or doubled crates: all in the repository.
cargo_deny() { cargo_deny_check bans licenses sources; }

cargo_deny_check() { PATH=$(environment_dir lint)/bin:$PATH cargo deny --all-features check "$@"; }

advisory_database_reached() { PATH=$(environment_dir lint)/bin:$PATH timeout 120 cargo deny fetch db >/dev/null 2>&1; }

# A mirror of PyPI may have the packages but not what is known of each release, which pip-audit asks for.
pypi_vulnerabilities_reached() {
  "$(environment_dir lint)/bin/python" - <<'PY' 2>/dev/null
import json
import urllib.request
from importlib.metadata import version
with urllib.request.urlopen(f"https://pypi.org/pypi/pip-audit/{version('pip-audit')}/json", timeout=10) as reply:
    json.load(reply)["vulnerabilities"]
PY
}

# One file after another: the environments hold different versions of the same packages.
pip_audit() {
  local lock
  for lock in scripts/requirements/*.lock; do
    "$(environment_dir lint)/bin/pip-audit" --disable-pip --require-hashes --progress-spinner off --requirement "$lock" || return
  done
}

# Without the feature `cuda` there is nothing of the kernels in the object; with it, which comes last, there is.
cpu_only_build() {
  local object=${CARGO_TARGET_DIR:-$ROOT/target}/debug/libtriton_spleenseg.so
  cargo build --locked --lib --no-default-features --features backend || return
  if grep -aq foreground_fp32 "$object"; then
    say "$object, built with --no-default-features --features backend, holds CUDA kernels"
    return 1
  fi
  cargo build --locked --lib && grep -aq foreground_fp32 "$object"
}

suite_rust() {
  check "build for CPUs only" cpu_only_build
  run_cargo_tests "rust" cargo test --locked --no-fail-fast
}

# The crate and its fake host under what sees memory that is used after its end, read before it was written, or never freed. Not the
# tests of values alone, nor those of the conformance kit, whose backends leak on purpose.
suite_sanitizers() {
  run_cargo_tests "address sanitizer" address_sanitizer
  if command -v valgrind >/dev/null; then
    run_cargo_tests "valgrind" under_valgrind
  else
    printf -- '-- valgrind: skipped, it is not installed (Debian: apt-get install valgrind)\n'
    count "valgrind" 0 0 1
  fi
  races
  server_under_address_sanitizer
}

test_options() { printf -- '--test %s ' "$@"; } # test_options TEST.. : what selects them of cargo's tests

# Every rustc has the sanitizer; a stable one takes the option only where RUSTC_BOOTSTRAP says so. The objects fit no others, hence a
# folder of their own, and a target is named so that build scripts are not instrumented.
address_sanitizer() {
  (
    export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS="detect_leaks=1"
    # shellcheck disable=SC2046 # one word an option
    cargo test --locked --no-fail-fast --target x86_64-unknown-linux-gnu --target-dir target/sanitizers \
      -p triton_backend_api -p triton_fake_host \
      $(test_options backend faults faults_server faults_streams in_process_memory in_process_waiting memory metrics requests \
        streams taking_over views ledger)
  )
}

# The real server with the spleen_seg backend compiled for AddressSanitizer: requests of every kind, right, wrong and random, and that a
# mistake would be seen. A cdylib comes without the sanitizer's runtime, so gcc's, which has the same interface, is loaded before the server.
server_under_address_sanitizer() {
  local target=x86_64-unknown-linux-gnu folder=$ROOT/target/sanitizers/x86_64-unknown-linux-gnu backends=$ROOT/build/address_sanitizer
  if ! (
    export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address"
    cargo build --locked --lib --no-default-features --features backend --target "$target" --target-dir target/sanitizers &&
      install_backend spleenseg "$folder/debug/libtriton_spleenseg.so" "$backends" &&
      rustc --edition 2024 --crate-type cdylib -Zsanitizer=address --target "$target" tests/e2e/faulty/backend.rs -o "$folder/libtriton_faulty.so"
  ); then
    count "server, address sanitizer" 0 1 0
    return
  fi
  locate_triton
  SPLEENSEG_BACKENDS=$backends SPLEENSEG_FAULTY_BACKEND=$folder/libtriton_faulty.so SPLEENSEG_RANDOM_REQUESTS=100 \
    SPLEENSEG_TRITON=$TRITON_SERVER SPLEENSEG_TRITON_LIBRARIES=$TRITON_LIBRARIES SPLEENSEG_STOCK_BACKENDS=$TRITON_STOCK_BACKENDS \
    SPLEENSEG_ADDRESS_SANITIZER=$(gcc -print-file-name=libasan.so) \
    run_pytest "server, address sanitizer" tests/e2e/address_sanitizer.py tests/e2e/test_random_requests.py tests/e2e/test_transports.py \
    tests/e2e/test_native.py tests/e2e/test_errors.py tests/e2e/test_lifetime.py -k "any_request or caught or small_volume or odd_pieces or \
    foreground or wrong_input or native_outputs or batches or takes_too_long or again_and_again or several_instances"
}

# Fewer, one by one: under valgrind those that make every call fail once take minutes.
under_valgrind() {
  # shellcheck disable=SC2046 # one word an option
  CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind --quiet --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite --error-exitcode=9" \
    RUST_TEST_THREADS=1 cargo test --locked --no-fail-fast -p triton_backend_api -p triton_fake_host \
    $(test_options backend memory metrics requests)
}

# One package a call: together cargo would give both the features of both.
suite_torchscript() {
  run_cargo_tests "rust, torchscript" torchscript_tests torchscript_backend
  run_cargo_tests "rust, spleenseg-cli" torchscript_tests spleenseg_cli
}

torchscript_tests() { # torchscript_tests PACKAGE
  announce_torchscript_build
  with_torchscript_target env "SPLEENSEG_TEST_PYTHON=$(environment_dir test)/bin/python" cargo test --release --locked --no-fail-fast -p "$1"
}

suite_parity() {
  # Before pytest begins, whose limit for one test is no limit for a compiler on a busy machine.
  if ! (need_rust && cargo build --release --locked --example steps); then
    count "parity with MONAI" 0 1 0
    say "the example steps does not build, so nothing was compared with MONAI"
    return
  fi
  if (($#)); then
    run_pytest "parity with MONAI" tests/parity "$@"
    return
  fi
  # In two halves at once: each waits for one thread most of the time.
  beside "parity, the kernels" run_pytest "parity with MONAI, the kernels" tests/parity -k kernels
  run_pytest "parity with MONAI, the CPU" tests/parity -k "not kernels"
  join
}

# The Python tools beside the backends: every other folder of tests.
suite_tools() {
  local folder name
  for folder in tests/*/; do
    name=$(basename "$folder")
    case $name in
      parity | e2e | client) ;;
      *) if compgen -G "${folder}test_*.py" >/dev/null; then run_pytest "tools: $name" "$folder" "$@"; fi ;;
    esac
  done
}

suite_e2e() {
  prepare_server "end to end" || return 0
  SPLEENSEG_FLOOR=$(environment_packages floor) SPLEENSEG_BELOW=$(environment_packages below)
  export SPLEENSEG_FLOOR SPLEENSEG_BELOW
  run_pytest "end to end" tests/e2e "$@"
}

# scripts/segment.py and what belongs to it, against the same server.
suite_client() {
  prepare_server "client" || return 0
  if ! (build_cli); then
    count "client" 0 1 0
    say "spleenseg-cli does not build, so nothing was tested of the client"
    return 0
  fi
  export SPLEENSEG_CLI=$BINARIES/spleenseg-cli
  PYTEST_ENVIRONMENT=client_test run_pytest "client" tests/client "$@"
}

prepare_server() { # prepare_server NAME : builds what a server needs, and tells the tests where it is
  if ! (build_backends && build_examples); then
    count "$1" 0 1 0
    say "the backends do not build, so nothing was tested against a server"
    return 1
  fi
  # The 224-cubed network of the shipped repository, which several tests share.
  local repository=$ROOT/build/test_repository
  write_model_repository "$repository"
  locate_triton
  export SPLEENSEG_BACKENDS=$BACKENDS SPLEENSEG_EXAMPLES=$EXAMPLES SPLEENSEG_REPOSITORY=$repository
  export SPLEENSEG_TRITON=$TRITON_SERVER SPLEENSEG_TRITON_LIBRARIES=$TRITON_LIBRARIES
  export SPLEENSEG_STOCK_BACKENDS=$TRITON_STOCK_BACKENDS SPLEENSEG_PERF_ANALYZER=$ROOT/scripts/perf_analyzer.sh
}
