#!/usr/bin/env bash
# Usage: scripts/test.sh [SUITE [PYTEST_ARGUMENT..]]
# Without arguments all suites, in this order: lint rust fuzz torchscript parity tools e2e sanitizers client; tools runs beside e2e. Installs and builds what is missing.
# Ends with one line of counts over all suites: "N passed, N failed, N skipped". Fails if anything failed or nothing ran.
# SPLEENSEG_TEST_DATA names the folder with the real CT (default ../shared/data); without it those tests are skipped.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
source "$ROOT/scripts/lib/environments.sh"
source "$ROOT/scripts/lib/build.sh"
source "$ROOT/scripts/lib/model.sh"
source "$ROOT/scripts/lib/server.sh"
source "$ROOT/scripts/lib/suites.sh"
source "$ROOT/scripts/lib/fuzz.sh"
source "$ROOT/scripts/lib/thread_sanitizer.sh"

case ${1:-} in -h | --help) sed -n '2,/^source/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;; esac
suites=(lint rust fuzz torchscript parity tools e2e sanitizers client)
if (($#)); then
  printf '%s\n' "${suites[@]}" | grep -qx -- "$1" || die "unknown suite '$1'; there are: ${suites[*]}"
  suites=("$1")
  shift
fi
cd "$ROOT"
SPLEENSEG_TEST_DATA=$(realpath -m "${SPLEENSEG_TEST_DATA:-../shared/data}")
export SPLEENSEG_TEST_DATA

need_rust
declare -A environments_of=([lint]="lint libtorch cuda" [rust]="cuda" [fuzz]="" [torchscript]="libtorch test" [parity]="test cuda" [tools]="serve test release deploy cuda" [e2e]="serve libtorch test client release floor below cuda" [sanitizers]="serve test" [client]="serve libtorch client client_test cuda")
# In the order in which they are needed; suites often share one.
mapfile -t needed < <(for suite in "${suites[@]}"; do tr ' ' '\n' <<<"${environments_of[$suite]}"; done | awk 'NF && !seen[$0]++')
announce_environments "${needed[@]}"
install_environments_ahead "${needed[@]}"

for suite in "${suites[@]}"; do
  # shellcheck disable=SC2086 # a list
  install_environments ${environments_of[$suite]}
  # Of all suites, `tools` runs beside `e2e`: one computes on one core, the other mostly waits for servers.
  if ((${#suites[@]} > 1)) && [[ $suite == tools ]]; then
    beside tools suite_tools
    continue
  fi
  heading "$suite"
  "suite_$suite" "$@"
  if ((${#suites[@]} > 1)) && [[ $suite == e2e ]]; then join; fi
done

heading "result"
for line in "${SUMMARY[@]}"; do printf '%s\n' "$line"; done
printf '%d passed, %d failed, %d skipped\n' "$PASSED" "$FAILED" "$SKIPPED"
((FAILED == 0 && PASSED > 0))
