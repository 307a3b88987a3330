#!/usr/bin/env bash
# Builds upstream's programs from the versions pinned in go.mod, on demand and once each.
#
#   interop/build.sh [name…]     no name: all of them
#   interop/build.sh --path      prints the directory only
#
# Prints the path of each program on stdout and progress on stderr. Programs go to
# ${KARVE_CACHE:-$HOME/.cache/karve}/bin/<kubernetes version>/<name>, never into the repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

version=$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' go.mod)
out=${KARVE_CACHE:-$HOME/.cache/karve}/bin/$version

# name → what to build. A package whose name ends in ":test" is compiled as a test binary,
# a .c file by the C compiler; a name that ends in "/" is a directory with a module of its own.
declare -A package=(
  [kubectl]=k8s.io/kubernetes/cmd/kubectl
  [e2e.test]=k8s.io/kubernetes/test/e2e:test
  [ginkgo]=github.com/onsi/ginkgo/v2/ginkgo
  [agnhost]=k8s.io/kubernetes/test/images/agnhost
  [kube-apiserver]=k8s.io/kubernetes/cmd/kube-apiserver
  [kube-controller-manager]=k8s.io/kubernetes/cmd/kube-controller-manager
  [kube-scheduler]=k8s.io/kubernetes/cmd/kube-scheduler
  [kubelet]=k8s.io/kubernetes/cmd/kubelet
  [kube-proxy]=k8s.io/kubernetes/cmd/kube-proxy
  [etcd]=./etcd
  [coredns]=coredns/
  [older-kubectl]=older-kubectl/
  [sample-apiserver]=k8s.io/sample-apiserver
  [nonewprivs]=k8s.io/kubernetes/test/images/nonewprivs
  [pause]=pause/pause.c
  [cri-clean]=./cri-clean
  [registry]=./registry
  [schema-oracle]=./schema-oracle
  [pod-security]=./pod-security
)
# The order of use: what most tests need first.
names=(kubectl pause cri-clean registry schema-oracle pod-security e2e.test ginkgo agnhost kube-apiserver kube-controller-manager
  kube-scheduler kubelet kube-proxy etcd coredns older-kubectl sample-apiserver nonewprivs)

# Unstamped builds call themselves v0.0.0-master, which fails the suite's version comparisons. A module of its own may
# pin another version of kubectl, v0.33 being that of Kubernetes 1.33.
stamp() {
  local version=$version major minor at own=
  [[ ! -f $1/go.mod ]] || own=$(awk '$1 == "k8s.io/kubectl" { print $2; exit }' "$1/go.mod")
  [[ -z $own ]] || version=v1${own#v0}
  major=${version#v}
  minor=${major#*.}
  for at in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    printf -- '-X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s -X %s.gitTreeState=archive ' \
      "$at" "$version" "$at" "${major%%.*}" "$at" "${minor%%.*}" "$at"
  done
}

build() {
  local name=$1 from=$2 flags started=$SECONDS
  flags="-s -w $(stamp "$from")"
  echo "building $name from ${from%:test}" >&2
  # The temporary name keeps a half-written program out of the cache and out of other callers' hands.
  local partial=$out/.$name.$$
  case $from in
    *.c) "${CC:-cc}" -static -Os -s -o "$partial" "$from" ;;
    *:test) go test -c -trimpath -ldflags "$flags" -o "$partial" "${from%:test}" ;;
    */) go build -C "$from" -trimpath -ldflags "$flags" -o "$partial" . ;;
    *) go build -trimpath -ldflags "$flags" -o "$partial" "$from" ;;
  esac
  mv "$partial" "$out/$name"
  echo "built $name in $((SECONDS - started)) s, $(du -m "$out/$name" | cut -f1) MB" >&2
}

if [[ ${1:-} == --path ]]; then
  echo "$out"
  exit
fi

export CGO_ENABLED=0
mkdir -p "$out"
[[ $# -gt 0 ]] || set -- "${names[@]}"
for name in "$@"; do
  if [[ -z ${package[$name]:-} ]]; then
    echo "build.sh: no program named '$name'; there are: ${names[*]}" >&2
    exit 2
  fi
done
for name in "$@"; do
  # Concurrent callers of the same program wait here and then find the work done.
  exec 9>"$out/.$name.lock"
  flock 9
  [[ -x $out/$name ]] || build "$name" "${package[$name]}"
  echo "$out/$name"
done
