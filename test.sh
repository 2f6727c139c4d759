#!/usr/bin/env bash
# Everything that must hold before a change is merged: format, lints, tests, docs, licences.
#
#   ./test.sh            all of it, after installing what the tests need (see tools/install.sh)
#   ./test.sh --quick    without installing tools and without building the docs
#
# Needs Rust (rustup), Node and Python. The test runner's closing lines come last.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

quick=no
current="start"
ended=no
scratch=""

main() {
  case "${1:-}" in
    "") ;;
    --quick) quick=yes ;;
    *) echo "usage: ./test.sh [--quick]" >&2 && exit 2 ;;
  esac
  if ! command -v cargo >/dev/null; then
    echo "test.sh: cargo is not on the PATH; install Rust from https://rustup.rs" >&2
    exit 1
  fi

  scratch="$(mktemp -d "${TMPDIR:-/tmp}/switchboard-test.XXXXXX")"
  trap report EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  # Output goes through a pipe to be kept, which would turn colours off.
  if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-always}"
  fi
  # Tests find their tools through this variable.
  SWITCHBOARD_TOOLS="$(tools/install.sh --where)"
  export SWITCHBOARD_TOOLS
  # A checkout that is built once gains nothing from what the compiler keeps for the next build, which is gigabytes.
  if [ -n "${CI:-}" ]; then
    export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
  fi

  [ "$quick" = yes ] || step "tools" install_tools
  step "format" cargo fmt --all --check
  step "lints" cargo clippy --workspace --all-targets --locked -- -D warnings
  # Without test targets: a crate that only compiles with the features of its dev-dependencies fails here.
  step "lints without tests" cargo clippy --workspace --locked -- -D warnings
  # Most tests wait for processes, disks and timers: two per core keep the cores busy.
  export NEXTEST_TEST_THREADS="${NEXTEST_TEST_THREADS:-$((2 * $(getconf _NPROCESSORS_ONLN)))}"
  # Only CI runs a failed test a second time (.config/nextest.toml).
  local profile=default
  [ -z "${CI:-}" ] || profile=ci
  if cargo nextest --version >/dev/null 2>&1; then
    step "tests" run_tests cargo nextest run --workspace --locked --profile "$profile"
    step "doc tests" cargo test --workspace --doc --locked
  else
    echo "test.sh: cargo-nextest is not installed, using cargo test (https://nexte.st for the former)"
    step "tests" run_tests cargo test --workspace --locked
  fi
  [ "$quick" = yes ] || step "docs" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
  if cargo deny --version >/dev/null 2>&1; then
    step "licences and bans" cargo deny check
  else
    echo "test.sh: cargo-deny is not installed, licences and bans of dependencies not checked"
  fi
  ended=yes
}

# step <name> <command...>: announces the command, runs it, says how long it took.
step() {
  current="$1"
  shift
  local started=$SECONDS
  echo "==> $current (at $SECONDS s)"
  "$@"
  echo "<== $current: ok in $((SECONDS - started)) s"
}

install_tools() {
  tools/install.sh 2>&1 | tee "$scratch/tools.log"
}

run_tests() {
  "$@" 2>&1 | tee "$scratch/tests.log"
}

# The last words, whatever happened: the failed step, what could not be tested, the runner's summary.
report() {
  local status=$?
  if [ "$ended" = yes ] && [ "$status" -eq 0 ]; then
    echo "test.sh: ok in $SECONDS s"
  else
    echo "test.sh: FAILED in step: $current (exit $status, after $SECONDS s)"
  fi
  if [ -f "$scratch/tools.log" ]; then
    grep 'MISSING' "$scratch/tools.log" || true
  fi
  if [ -f "$scratch/tests.log" ]; then
    closing_lines "$scratch/tests.log"
  fi
  rm -rf "$scratch"
  exit "$status"
}

# From nextest: the Summary line and the one-line statuses that follow it, without the failed tests'
# output, which stands further up. From cargo test: one result line per binary, and their sums.
closing_lines() {
  awk '
    {
      last = plain = $0
      gsub(/\033\[[0-9;]*m/, "", plain)
    }
    plain ~ /^ *Summary .*tests? run:/ { summary = ""; in_summary = 1 }
    in_summary && plain ~ /^( *[A-Za-z0-9\/ -]+ \[[ >]*[0-9.]+s\]|warning:|error:)/ {
      summary = summary $0 "\n"
    }
    /^test result:/ {
      results = results $0 "\n"
      for (i = 2; i <= NF; i++) {
        if ($i ~ /^passed/) passed += $(i - 1)
        if ($i ~ /^failed/) failed += $(i - 1)
        if ($i ~ /^ignored/) ignored += $(i - 1)
      }
    }
    END {
      if (summary != "") printf "%s", summary
      else if (results == "") print last
      else {
        printf "%s", results
        printf "total: %d passed; %d failed; %d ignored\n", passed, failed, ignored
      }
    }
  ' "$1"
}

main "$@"
