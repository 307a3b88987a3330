#!/usr/bin/env bash
# Builds the container images that upstream's suite starts, on demand and once each.
#
#   interop/images.sh [name…]     no name: all of them; the names are in images/main.go
#
# Prints the path of each archive on stdout. Archives are in the layout of `docker save`, for `karve image import`
# and `ctr images import`, in ${KARVE_CACHE:-$HOME/.cache/karve}/images/<kubernetes version>/<name>.tar.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

programs=$(./build.sh --path)
out=${KARVE_CACHE:-$HOME/.cache/karve}/images/$(basename "$programs")
mkdir -p "$out"

# name → the programs of build.sh that go into it.
declare -A needs=(
  [pause]=pause
  [agnhost]=agnhost
  [nonewprivs]=nonewprivs
  [sample-apiserver]=sample-apiserver
  [etcd]=etcd
)

# Tests set variables with a dash in their name and expect the shell to pass them on. Debian's builds of busybox drop
# them, in every release; so this builds upstream's sources as Debian's source package carries them, without Debian's
# changes. A private apt state leaves the machine's sources and lists alone.
build_busybox() {
  local work=$1 uri options
  uri=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Created-By: Packages' | grep '/debian/$' | head -n 1)
  [[ -n $uri ]] || return 1
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/source"
  echo "deb-src $uri trixie main" >"$work/sources.list"
  options=(-qq -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root
    -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Acquire::Languages=none)
  apt-get "${options[@]}" update
  (cd "$work" && apt-get "${options[@]}" source --download-only busybox)
  tar -xf "$work"/busybox_*.orig.tar.bz2 -C "$work/source" --strip-components 1
  make -C "$work/source" --silent defconfig >/dev/null
  sed -i -e 's/.*CONFIG_STATIC is not set/CONFIG_STATIC=y/' -e 's/^CONFIG_TC=y/# CONFIG_TC is not set/' "$work/source/.config"
  make -C "$work/source" --silent -j "$(nproc)" busybox >"$work/make.log" 2>&1 || { tail "$work/make.log"; return 1; }
  cp "$work/source/busybox" "$out/.busybox.$$"
}

# Sets $busybox.
find_busybox() {
  busybox=$out/busybox
  [[ ! -x $busybox ]] || return 0
  echo "building busybox" >&2
  local work
  work=$(mktemp -d)
  # A subshell of its own keeps "stop at the first error", which a condition would turn off.
  set +e
  (set -e; build_busybox "$work") >&2
  local status=$?
  set -e
  if [[ $status -ne 0 ]]; then
    echo "images.sh: busybox cannot be built here; with the installed one, some tests fail" >&2
    cp "$(command -v busybox)" "$out/.busybox.$$"
  fi
  rm -rf "$work"
  mv "$out/.busybox.$$" "$busybox"
}

build() {
  local name=$1
  # shellcheck disable=SC2086 # The value is a list of words.
  [[ -z ${needs[$name]:-} ]] || ./build.sh ${needs[$name]} >/dev/null
  find_busybox
  go run ./images -programs "$programs" -busybox "$busybox" -out "$out" \
    -upstream "$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)" "$name"
}

export CGO_ENABLED=0
# shellcheck disable=SC2046 # The list is of words.
[[ $# -gt 0 ]] || set -- $(go run ./images -list)
exec 9>"$out/.lock"
flock 9
for name in "$@"; do
  [[ -e $out/$name.tar ]] || build "$name"
  echo "$out/$name.tar"
done
