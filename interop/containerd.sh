#!/usr/bin/env bash
# Runs a containerd of its own, apart from the machine's: for tests of a kubelet against a foreign container runtime.
#
#   interop/containerd.sh start DIR [ARCHIVE…]   prints the path of the CRI socket
#   interop/containerd.sh restart DIR            ends containerd, but no pod, and starts it again
#   interop/containerd.sh stop DIR               removes all pods, then containerd, and all of DIR but its logs
#
# Imports the given image archives, or pause, busybox and agnhost of images.sh. It pulls from nowhere: every registry
# resolves to a closed port. Runs in the caller's network namespace. Needs root and the Debian packages containerd,
# runc and containernetworking-plugins.
#
#   POD_SUBNET       addresses of the pods (10.88.0.0/24)
#   CNI_PLUGINS      directory of the CNI plugins (/usr/lib/cni, else /opt/cni/bin)
#   REGISTRY_MIRROR  URL to resolve every registry to (http://127.0.0.1:1)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

write_config() {
  local plugins=${CNI_PLUGINS:-/usr/lib/cni}
  [[ -x $plugins/bridge ]] || plugins=/opt/cni/bin
  [[ -x $plugins/bridge ]] || fail "no CNI plugins found; install containernetworking-plugins or set CNI_PLUGINS"
  mkdir -p "$dir/cni" "$dir/registries/_default"
  # restrict_oom_score_adj: root in a virtual machine may lack CAP_SYS_RESOURCE, and then no score can be lowered.
  cat >"$dir/containerd.toml" <<EOF
version = 2
root = "$dir/root"
state = "$dir/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "$dir/containerd.sock"
[ttrpc]
  address = "$dir/containerd.sock.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "$dir/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10.2"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$plugins"
    conf_dir = "$dir/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "$dir/registries"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "$dir/runc"
EOF
  cat >"$dir/registries/_default/hosts.toml" <<EOF
server = "${REGISTRY_MIRROR:-http://127.0.0.1:1}"
[host."${REGISTRY_MIRROR:-http://127.0.0.1:1}"]
  capabilities = ["pull", "resolve"]
EOF
  cat >"$dir/cni/10-bridge.conflist" <<EOF
{
  "cniVersion": "1.0.0",
  "name": "interop",
  "plugins": [
    {
      "type": "bridge", "bridge": "kvp$(tag)", "isGateway": true, "ipMasq": true, "hairpinMode": true,
      "ipam": {
        "type": "host-local", "dataDir": "$dir/addresses",
        "ranges": [[{ "subnet": "${POD_SUBNET:-10.88.0.0/24}" }]],
        "routes": [{ "dst": "0.0.0.0/0" }]
      }
    },
    { "type": "portmap", "capabilities": { "portMappings": true } }
  ]
}
EOF
  # The plugin makes this link with the first pod.
  mkdir -p "$dir/own/links"
  touch "$dir/own/links/kvp$(tag)"
}

start() {
  local archive archives=("$@")
  [[ ${#dir} -le 80 ]] || fail "$dir is too long a path for the sockets in it"
  [[ ! -e $dir/own ]] || fail "$dir is in use; run 'stop $dir' first"
  if [[ ${#archives[@]} -eq 0 ]]; then
    mapfile -t archives < <("$interop/images.sh" pause busybox agnhost)
  fi
  "$interop/build.sh" cri-clean >/dev/null
  write_config
  launch containerd containerd --config "$dir/containerd.toml"
  wait_for 20 containerd ctr --address "$dir/containerd.sock" version
  for archive in "${archives[@]}"; do
    ctr --address "$dir/containerd.sock" --namespace k8s.io images import "$archive" >"$dir/logs/import.log" 2>&1 ||
      fail "$archive cannot be imported: $(tail -n 1 "$dir/logs/import.log")"
  done
  echo "$dir/containerd.sock"
}

restart() {
  end containerd
  launch containerd containerd --config "$dir/containerd.toml"
  wait_for 20 containerd ctr --address "$dir/containerd.sock" version
}

stop() {
  if is_running containerd; then
    "$("$interop/build.sh" cri-clean)" "$dir/containerd.sock" ||
      echo "containerd.sh: not all pods could be removed in order; removing what is left of them" >&2
  fi
  end containerd
  end_shims
  remove_links
  unmount_below "$dir"
  local entry
  for entry in "$dir"/*; do
    [[ $entry == "$dir/logs" || $entry == "$dir/own" ]] || rm -rf --one-file-system "$entry"
  done
  rm -rf "$dir/own"
}

# Shims outlive containerd by design. Those of this directory carry its socket among their arguments.
end_shims() {
  local process arguments
  for process in /proc/[0-9]*; do
    mapfile -d '' -t arguments 2>/dev/null <"$process/cmdline" || continue
    [[ ${arguments[0]:-} == *containerd-shim* && " ${arguments[*]} " == *" $dir/containerd.sock "* ]] || continue
    # A shim's containers are its children; they end first, for nobody else would end them.
    # shellcheck disable=SC2046 # A list of pids.
    kill -KILL $(cat "$process"/task/*/children 2>/dev/null) 2>/dev/null || true
    kill -KILL "${process#/proc/}" 2>/dev/null || true
  done
}

[[ $# -ge 2 ]] || fail "usage: containerd.sh start DIR [ARCHIVE…] | restart DIR | stop DIR"
verb=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd)
shift 2
case $verb in
  start) start "$@" ;;
  restart) restart ;;
  stop) stop ;;
  *) fail "unknown verb '$verb'; there are start, restart and stop" ;;
esac
