# Fuzzing: the targets of fuzz/, compiled with coverage counters and AddressSanitizer. Source it after suites.sh.
# shellcheck shell=bash

FUZZ_TARGETS=(configuration byte_strings sizes prepare components contour)
FUZZ_FOLDER=$ROOT/target/fuzz # objects, logs, what was found; new inputs of earlier runs, which the next one begins with

# What cargo-fuzz would pass: every rustc has the passes; a stable one takes the options only where RUSTC_BOOTSTRAP says so.
build_fuzz_targets() {
  local coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
  coverage+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
  RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address $coverage -Cdebug-assertions -Coverflow-checks --cfg fuzzing" \
    cargo build --release --locked --manifest-path fuzz/Cargo.toml --target x86_64-unknown-linux-gnu --target-dir "$FUZZ_FOLDER"
}

# Each target for SPLEENSEG_FUZZ_SECONDS (60), two at a time. `scripts/test.sh fuzz components` runs one.
suite_fuzz() {
  local targets=("$@") target seconds=${SPLEENSEG_FUZZ_SECONDS:-60} running=()
  (($#)) || targets=("${FUZZ_TARGETS[@]}")
  for target in "${targets[@]}"; do
    [[ -e $ROOT/fuzz/targets/$target.rs ]] || die "there is no fuzz target '$target'; there are: ${FUZZ_TARGETS[*]}"
  done
  if ! build_fuzz_targets; then
    count "fuzz" 0 1 0
    return
  fi
  for target in "${targets[@]}"; do
    # Not a bare `wait`: the environments of later suites may still be on their way.
    if ((${#running[@]} == 2)); then
      wait "${running[@]}" || true
      running=()
    fi
    fuzz "$target" "$seconds" &
    running+=("$!")
  done
  wait "${running[@]}" || true
  for target in "${targets[@]}"; do check "fuzz: $target" fuzz_result "$target"; done
}

# The first corpus is libFuzzer's to write to, the second is the repository's. An input that takes 20 s or 1 GB is a finding too.
fuzz() { # fuzz TARGET SECONDS
  local found=$FUZZ_FOLDER/found/$1 options=(-max_total_time="$2" -timeout=20 -rss_limit_mb=1024 -print_final_stats=1)
  if [[ -e $ROOT/fuzz/corpus/$1.dict ]]; then options+=(-dict="$ROOT/fuzz/corpus/$1.dict"); fi
  mkdir -p "$found"
  rm -f "$FUZZ_FOLDER/$1.passed"
  if "$FUZZ_FOLDER/x86_64-unknown-linux-gnu/release/$1" "$found" "$ROOT/fuzz/corpus/$1" "${options[@]}" -artifact_prefix="$FUZZ_FOLDER/$1-" \
    >"$FUZZ_FOLDER/$1.log" 2>&1; then
    touch "$FUZZ_FOLDER/$1.passed"
  fi
}

fuzz_result() { # fuzz_result TARGET : what its run says
  local log=$FUZZ_FOLDER/$1.log input
  if [[ -e $FUZZ_FOLDER/$1.passed ]]; then
    awk -v target="$1" '/^#.* cov: / { cov = $4 } /number_of_executed_units/ { runs = $2 }
      END { printf "%s: %d executions, %d edges\n", target, runs, cov; exit runs < 1 }' "$log"
    return
  fi
  tail -n 60 "$log"
  input=$(grep -oP 'Test unit written to \K.*' "$log" || true)
  say "the input is in ${input:-no file}; again: $FUZZ_FOLDER/x86_64-unknown-linux-gnu/release/$1 $input"
  return 1
}
