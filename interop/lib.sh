# Sourced by the scripts here: processes, mounts, links and cgroups that a directory owns, and their removal.
# The directory is $dir; its records of what it owns are in $dir/own.

interop=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# A short name for links and cgroups, stable for the directory and different from every other directory's.
tag() {
  printf '%s' "$dir" | sha256sum | cut -c1-8
}

# The time a process started, in ticks since boot, or nothing if it has ended. With the pid it names one process for
# ever; a pid alone is reused. An ended process that its parent has not reaped has ended all the same.
started_at() {
  # The command name in parentheses may hold spaces, so fields are counted after it.
  sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }'
}

# launch NAME COMMAND…: starts a process of its own session, with its output in $dir/logs/NAME.log.
launch() {
  local name=$1
  shift
  mkdir -p "$dir/own/pids" "$dir/logs"
  rm -f "$dir/own/pids/$name"
  record=$dir/own/pids/$name launch_recorded "$@" >"$dir/logs/$name.log" 2>&1 </dev/null &
  local tries=0
  until [[ -e $dir/own/pids/$name ]]; do
    [[ $((++tries)) -lt 1000 ]] || fail "$name did not start; see $dir/logs/$name.log"
    sleep 0.005
  done
}

# It makes its own record first, at once and whole: whoever starts it may be ended before it could make one.
launch_recorded() {
  local pid=$BASHPID new
  new=$dir/own/new-$pid
  echo "$pid $(started_at "$pid")" >"$new" && mv "$new" "$record" || exit
  # No lock of a caller may live on in a server.
  exec setsid "$@" 9>&-
}

is_running() {
  local pid since
  read -r pid since 2>/dev/null <"$dir/own/pids/$1" && [[ -n $since && $(started_at "$pid") == "$since" ]]
}

# end NAME [SECONDS]: asks the process to end, and insists after a while.
end() {
  local name=$1 patience=${2:-10} pid deadline
  if is_running "$name"; then
    read -r pid _ <"$dir/own/pids/$name"
    kill "$pid" 2>/dev/null || true
    deadline=$((SECONDS + patience))
    while is_running "$name"; do
      [[ $SECONDS -lt $deadline ]] || kill -KILL "$pid" 2>/dev/null || true
      sleep 0.05
    done
  fi
  rm -f "$dir/own/pids/$name"
}

# wait_for SECONDS WHAT COMMAND…: until the command succeeds.
wait_for() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [[ $SECONDS -lt $deadline ]] || fail "$what did not come up; see $dir/logs"
    sleep 0.02
  done
}

# add_bridge NAME ADDRESS/LENGTH: a link for an address of this machine's own. A bridge, because every kernel that
# runs pods has bridges and not every one has dummy links.
add_bridge() {
  mkdir -p "$dir/own/links"
  touch "$dir/own/links/$1"
  ip link add "$1" type bridge
  ip address add "$2" dev "$1"
  ip link set "$1" up
}

remove_links() {
  local link
  for link in "$dir"/own/links/*; do
    [[ -e $link ]] || continue
    ip link delete "${link##*/}" 2>/dev/null || true
    rm -f "$link"
  done
}

# unmount_below PATH: deepest first, lazily, because a container that just ended may still hold one.
unmount_below() {
  local at
  awk -v below="$1/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while read -r at; do
    umount -l "$(printf '%b' "$at")" 2>/dev/null || true
  done
}

# remove_cgroups NAME: from every hierarchy, v1 and v2, children first. Processes still inside keep theirs alive.
remove_cgroups() {
  local root
  for root in /sys/fs/cgroup "/sys/fs/cgroup"/*; do
    [[ -d $root/$1 ]] || continue
    find "$root/$1" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done
}

# start_api_server: upstream's API server alone on an etcd, in $dir and on this network's loopback, for scripts that record
# what it answers. Admission is switched off, because its plugins are not rules of a kind. Sets $api.
start_api_server() {
  local bin plugins
  bin=$("$interop/build.sh" --path)
  "$interop/build.sh" etcd kube-apiserver >/dev/null
  plugins=LimitRanger,ServiceAccount,TaintNodesByCondition,PodSecurity,Priority,DefaultTolerationSeconds
  plugins+=,DefaultStorageClass,StorageObjectInUseProtection,RuntimeClass,CertificateSubjectRestriction
  plugins+=,DefaultIngressClass,ResourceQuota
  api=https://127.0.0.1:6443
  cd "$dir"
  echo 'recorder,recorder,1,"system:masters"' >tokens.csv
  openssl ecparam -name prime256v1 -genkey -noout -out service-account.key
  launch etcd "$bin/etcd" --data-dir "$dir/etcd"
  launch kube-apiserver "$bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --bind-address=127.0.0.1 \
    --advertise-address=127.0.0.1 --endpoint-reconciler-type=none --cert-dir="$dir/certificates" \
    --token-auth-file="$dir/tokens.csv" --authorization-mode=RBAC --disable-admission-plugins="$plugins" \
    --service-cluster-ip-range=10.96.0.0/16 --allow-privileged=true --service-account-key-file=service-account.key \
    --service-account-signing-key-file=service-account.key --service-account-issuer=https://kubernetes.default.svc
  wait_for 60 kube-apiserver ask --fail "$api/readyz"
  wait_for 60 "the default namespace" ask --fail "$api/api/v1/namespaces/default"
}

# ask CURL-ARGUMENTS…: a request to it.
ask() {
  curl --silent --show-error --insecure --header "Authorization: Bearer recorder" "$@"
}
