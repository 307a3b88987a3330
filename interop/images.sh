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

# Debian 12's own busybox is 1.35, whose shell drops variables with a dash in their name; tests set such. The next
# release's static build runs anywhere. A private apt state leaves the machine's sources and lists alone.
busybox_from_debian() {
  local work=$1 uri options
  uri=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Created-By: Packages' | grep '/debian/$' | head -n 1)
  [[ -n $uri ]] || return 1
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
  echo "deb $uri trixie main" >"$work/sources.list"
  options=(-qq -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root
    -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Acquire::Languages=none)
  apt-get "${options[@]}" update >&2
  (cd "$work" && apt-get "${options[@]}" download busybox-static >&2)
  dpkg-deb -x "$work"/busybox-static_*.deb "$work/root"
  cp "$work/root/usr/bin/busybox" "$out/.busybox.$$"
}

# Sets $busybox. Prefers what is in the cache, then Debian's next release, then what is installed.
find_busybox() {
  busybox=$out/busybox
  [[ ! -x $busybox ]] || return 0
  local work
  work=$(mktemp -d)
  if ! (busybox_from_debian "$work"); then
    echo "images.sh: no newer busybox is within reach; the installed one, if older than 1.36, fails a few tests" >&2
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
