#!/usr/bin/env bash
# Runs upstream's own cluster of one node beside Karve, for comparison: etcd, kube-apiserver, kube-controller-manager,
# kube-scheduler, kubelet on containerd, kube-proxy, CoreDNS; TLS, RBAC, synced writes, leader election, iptables.
#
#   interop/upstream-cluster.sh start DIR     prints lines of "name value", times in ms from the first process's start
#   interop/upstream-cluster.sh start-control DIR [NAME…]   etcd, kube-apiserver and these components, without a node
#   interop/upstream-cluster.sh restart DIR   ends all but containerd and its pods, starts again, prints the times
#   interop/upstream-cluster.sh swap DIR NAME ours|upstream   ends one component and starts the other side's in its place
#   interop/upstream-cluster.sh bounce DIR NAME  ends one component, or the runtime, and starts the same one again
#   interop/upstream-cluster.sh add-node DIR     a second node, of ours, in a network namespace of its own
#   interop/upstream-cluster.sh lose-node DIR    ends everything on the second node at once and cuts its wire
#   interop/upstream-cluster.sh measure DIR   prints "name pss_kb rss_kb cpu_ms" of each process
#   interop/upstream-cluster.sh stop DIR      ends it, and removes all of DIR but the logs
#
# Everything is in DIR and in a network namespace of its own, so that ports, links and firewall rules are nobody else's
# and vanish with it. Its clients run inside: nsenter --net=DIR/netns kubectl --kubeconfig DIR/admin.conf get nodes
# Needs root and the packages that containerd.sh names, openssl, curl and iptables.
#
#   IMAGES   archives of images.sh to import, by name (pause busybox agnhost)
#   OURS     components that Karve stands in for from the start, by name (none); "runtime" is the container runtime, which
#            cannot be swapped later, for containers do not change hands
#   KARVE    Karve's binary, for OURS and swap
#   STORE    embedded: an API server of ours keeps its objects itself (etcd)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

node=node-1
node_address=10.99.0.1
second_address=10.99.0.2
all_pods=10.88.0.0/16
pod_subnet=10.88.0.0/24
second_subnet=10.88.1.0/24
service_subnet=10.96.0.0/16
kubernetes_service=10.96.0.1
dns_service=10.96.0.10
api=https://127.0.0.1:6443

# certificate NAME SUBJECT [ALTERNATIVE-NAMES]: an EC key and a certificate from the cluster's authority.
certificate() {
  local name=$1 subject=$2 names=${3:-}
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$name.key" -subj "$subject" 2>/dev/null |
    openssl x509 -req -CA ca.crt -CAkey ca.key -days 30 -out "$name.crt" -extfile <(
      echo "keyUsage=digitalSignature,keyEncipherment"
      echo "extendedKeyUsage=serverAuth,clientAuth"
      [[ -z $names ]] || echo "subjectAltName=$names"
    ) 2>/dev/null
}

make_certificates() {
  mkdir -p "$dir/pki"
  cd "$dir/pki"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=interop-ca \
    -keyout ca.key -out ca.crt 2>/dev/null
  openssl ecparam -name prime256v1 -genkey -noout -out service-account.key
  certificate apiserver /CN=kube-apiserver "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,\
DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:$node_address,IP:$kubernetes_service"
  certificate kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
  certificate front-proxy /CN=front-proxy-client
  certificate admin /O=system:masters/CN=admin
  certificate controller-manager /CN=system:kube-controller-manager
  certificate scheduler /CN=system:kube-scheduler
  certificate proxy /CN=system:kube-proxy
  certificate kubelet "/O=system:nodes/CN=system:node:$node"
  local user
  for user in admin controller-manager scheduler proxy kubelet; do
    write_kubeconfig "$user"
  done
  cd "$dir"
}

write_kubeconfig() {
  cat >"$dir/$1.conf" <<EOF
apiVersion: v1
kind: Config
clusters:
- name: interop
  cluster: { server: "$api", certificate-authority: "$dir/pki/ca.crt" }
users:
- name: $1
  user: { client-certificate: "$dir/pki/$1.crt", client-key: "$dir/pki/$1.key" }
contexts:
- name: interop
  context: { cluster: interop, user: $1 }
current-context: interop
EOF
  chmod 600 "$dir/$1.conf"
}

# failCgroupV1: machines with cgroup v1, or v1 beside v2, are what upstream still runs on when told so.
# Eviction is set low, because a full disk of the machine under test is no part of a comparison.
write_kubelet_config() {
  : >"$dir/resolv.conf"
  cat >"$dir/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: /kv$(tag)
containerRuntimeEndpoint: unix://$(cri_socket)
authentication:
  x509: { clientCAFile: "$dir/pki/ca.crt" }
authorization: { mode: Webhook }
clusterDomain: cluster.local
clusterDNS: [$dns_service]
resolvConf: "$dir/resolv.conf"
podLogsDir: "$dir/pod-logs"
volumePluginDir: "$dir/volume-plugins"
oomScoreAdj: 0
evictionHard: { memory.available: 10Mi, nodefs.available: 10Mi, imagefs.available: 10Mi }
imageGCHighThresholdPercent: 100
serializeImagePulls: false
EOF
}

# The kubelet wants its cgroup root to exist in every hierarchy. A new cpuset is empty and takes no process.
make_cgroups() {
  local root cgroup
  for root in /sys/fs/cgroup /sys/fs/cgroup/*; do
    [[ -e $root/cgroup.procs ]] || continue
    cgroup=$root/kv$(tag)
    mkdir -p "$cgroup"
    if [[ -e $root/cpuset.cpus && ! -e $root/cgroup.controllers ]]; then
      cat "$root/cpuset.cpus" >"$cgroup/cpuset.cpus"
      cat "$root/cpuset.mems" >"$cgroup/cpuset.mems"
    fi
  done
}

launch_apiserver() {
  launch etcd "$bin/etcd" --data-dir "$dir/etcd" --name "$node" \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
    --initial-cluster "$node=http://127.0.0.1:2380"
  launch_component kube-apiserver
}

# Flags that both sides' API servers take.
apiserver_flags() {
  flags=(--secure-port=6443 --advertise-address="$node_address" --allow-privileged=true
    --service-cluster-ip-range="$service_subnet"
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --anonymous-auth=true
    --client-ca-file="$dir/pki/ca.crt"
    --tls-cert-file="$dir/pki/apiserver.crt" --tls-private-key-file="$dir/pki/apiserver.key"
    --kubelet-client-certificate="$dir/pki/kubelet-client.crt" --kubelet-client-key="$dir/pki/kubelet-client.key"
    --service-account-issuer=https://kubernetes.default.svc.cluster.local
    --service-account-key-file="$dir/pki/service-account.key"
    --service-account-signing-key-file="$dir/pki/service-account.key")
  [[ $(fact store etcd) == embedded ]] || flags+=(--etcd-servers=http://127.0.0.1:2379)
}

# Upstream's API server reaches the embedded store by etcd's API.
kube-apiserver_upstream() {
  local flags
  apiserver_flags
  if [[ $(fact store etcd) == embedded ]]; then
    launch store "$(fact karve)" etcd --data-dir "$dir/karve" --listen-client-urls https://127.0.0.1:2389
    local pki=$dir/karve/pki
    wait_for 30 "the store's client certificate" test -s "$pki/etcd-client.crt"
    flags+=(--etcd-servers=https://127.0.0.1:2389 --etcd-cafile="$pki/etcd-ca.crt"
      --etcd-certfile="$pki/etcd-client.crt" --etcd-keyfile="$pki/etcd-client.key")
  fi
  launch kube-apiserver "$bin/kube-apiserver" "${flags[@]}" \
    --kubelet-preferred-address-types=InternalIP \
    --requestheader-client-ca-file="$dir/pki/ca.crt" --requestheader-allowed-names=front-proxy-client \
    --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
    --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --proxy-client-cert-file="$dir/pki/front-proxy.crt" --proxy-client-key-file="$dir/pki/front-proxy.key"
}

kube-apiserver_ours() {
  local flags
  apiserver_flags
  end store
  launch kube-apiserver "$(fact karve)" kube-apiserver --data-dir "$dir/karve" "${flags[@]}"
}

# Upstream's two end when they are refused, and they are until the API server has made its own roles.
launch_controllers() {
  launch_component kube-controller-manager
  launch_component kube-scheduler
}

kube-controller-manager_upstream() {
  # shellcheck disable=SC2046 # A list of flags.
  launch kube-controller-manager "$bin/kube-controller-manager" $(request_limits) --kubeconfig="$dir/controller-manager.conf" \
    --authentication-kubeconfig="$dir/controller-manager.conf" --authorization-kubeconfig="$dir/controller-manager.conf" \
    --bind-address=127.0.0.1 --use-service-account-credentials=true --flex-volume-plugin-dir="$dir/volume-plugins" \
    --root-ca-file="$dir/pki/ca.crt" --service-account-private-key-file="$dir/pki/service-account.key" \
    --cluster-signing-cert-file="$dir/pki/ca.crt" --cluster-signing-key-file="$dir/pki/ca.key"
}

kube-controller-manager_ours() {
  launch kube-controller-manager "$(fact karve)" kube-controller-manager --kubeconfig "$dir/controller-manager.conf" \
    --use-service-account-credentials --root-ca-file "$dir/pki/ca.crt" --data-dir "$dir/karve"
}

kube-scheduler_upstream() {
  # shellcheck disable=SC2046 # A list of flags.
  launch kube-scheduler "$bin/kube-scheduler" $(request_limits) --kubeconfig="$dir/scheduler.conf" --bind-address=127.0.0.1 \
    --authentication-kubeconfig="$dir/scheduler.conf" --authorization-kubeconfig="$dir/scheduler.conf"
}

kube-scheduler_ours() {
  launch kube-scheduler "$(fact karve)" kube-scheduler --kubeconfig "$dir/scheduler.conf" --data-dir "$dir/karve"
}

cri_socket() {
  case $(fact side-runtime upstream) in
    ours) echo "$dir/cri.sock" ;;
    upstream) echo "$dir/cri/containerd.sock" ;;
  esac
}

# start_runtime ARCHIVE…: the container runtime, with images.
start_runtime() {
  case $(fact side-runtime upstream) in
    ours)
      runtime_ours
      our_images "kv$(tag)" "$dir/runtime" "$@"
      ;;
    upstream) POD_SUBNET=$pod_subnet "$interop/containerd.sh" start "$dir/cri" "$@" >/dev/null ;;
  esac
}

runtime_ours() {
  launch runtime "$(fact karve)" runtime --name "kv$(tag)" --data-dir "$dir/runtime" --listen "unix://$dir/cri.sock" \
    --pod-cidr "$pod_subnet" --cluster-cidr "$all_pods" --service-cluster-ip-range "$service_subnet" \
    --cgroup-parent "/kv$(tag)"
  wait_for 20 runtime test -S "$dir/cri.sock"
}

# our_images NAME DATA-DIR ARCHIVE…
our_images() {
  local archive
  for archive in "${@:3}"; do
    "$(fact karve)" image import --name "$1" --data-dir "$2" "$archive" >"$dir/logs/import.log" 2>&1 ||
      fail "$archive cannot be imported: $(tail -n 1 "$dir/logs/import.log")"
  done
}

bounce() {
  case $1-$(fact "side-$1" upstream) in
    runtime-upstream) "$interop/containerd.sh" restart "$dir/cri" ;;
    runtime-ours)
      end runtime
      runtime_ours
      ;;
    *)
      end "$1" 2
      launch_component "$1"
      ;;
  esac
}

# The second node is Karve's kubelet on Karve's runtime: what is looked at is how the cluster takes its loss.
add_node() {
  local archives
  # shellcheck disable=SC2086 # A list of words.
  mapfile -t archives < <("$interop/images.sh" ${IMAGES:-pause agnhost})
  touch "$dir/netns-2"
  unshare --net="$dir/netns-2" true
  ip link add port2 type veth peer name uplink netns "$dir/netns-2"
  ip link set port2 master "kvn$(tag)" up
  ip route replace "$second_address/32" dev "kvn$(tag)"
  ip route replace "$second_subnet" via "$second_address" onlink dev "kvn$(tag)"
  (cd "$dir/pki" && certificate kubelet-2 /O=system:nodes/CN=system:node:node-2)
  api=https://$node_address:6443 write_kubeconfig kubelet-2
  exec nsenter --net="$dir/netns-2" "$interop/upstream-cluster.sh" second-inside "$dir" "${archives[@]}"
}

add_node_inside() {
  local name
  name=kv$(tag)-2
  ip link set lo up
  ip address add "$second_address/32" dev uplink
  ip link set uplink up
  ip route add "$node_address/32" dev uplink
  ip route add default via "$node_address" onlink dev uplink
  launch runtime-2 "$(fact karve)" runtime --name "$name" --data-dir "$dir/node-2" --listen "unix://$dir/cri-2.sock" \
    --pod-cidr "$second_subnet" --cluster-cidr "$all_pods" --service-cluster-ip-range "$service_subnet"
  wait_for 20 runtime-2 test -S "$dir/cri-2.sock"
  our_images "$name" "$dir/node-2" "$@"
  launch kubelet-2 "$(fact karve)" kubelet --kubeconfig "$dir/kubelet-2.conf" --name "$name" --data-dir "$dir/node-2" \
    --container-runtime-endpoint "unix://$dir/cri-2.sock" --root-dir "$dir/node-2/kubelet" \
    --pod-logs-dir "$dir/node-2/pod-logs" --cgroup-root "/karve-$name" --cluster-dns "$dns_service" \
    --client-ca-file "$dir/pki/ca.crt" --hostname-override node-2 --node-ip "$second_address" \
    --eviction-hard "memory.available<10Mi,nodefs.available<10Mi,imagefs.available<10Mi"
}

# As a machine goes that loses its power: nobody says goodbye, and nothing of it answers any more.
lose_node() {
  local name pid
  ip link delete port2 2>/dev/null || true
  for name in kubelet-2 runtime-2; do
    ! is_running "$name" || { read -r pid _ <"$dir/own/pids/$name" && kill -KILL "$pid"; }
    end "$name" 0
  done
  remove_second_node
}

remove_second_node() {
  local name
  [[ -e $dir/netns-2 ]] || return 0
  name=kv$(tag)-2
  end kubelet-2
  # It ends the pods that outlived the runtime.
  nsenter --net="$dir/netns-2" "$(fact karve)" reset --name "$name" --data-dir "$dir/node-2" >>"$dir/logs/node-2.log" 2>&1 || true
  umount "$dir/netns-2" 2>/dev/null || true
  remove_cgroups "karve-$name"
  rm -rf --one-file-system "$dir/netns-2" "$dir/node-2" "$dir/kubelet-2.conf" "$dir/cri-2.sock"
}

launch_node() {
  launch_component kubelet
  launch_component kube-proxy
}

kubelet_upstream() {
  launch kubelet "$bin/kubelet" --config="$dir/kubelet.yaml" --kubeconfig="$dir/kubelet.conf" \
    --root-dir="$dir/kubelet" --cert-dir="$dir/kubelet/pki" --hostname-override="$node" --node-ip="$node_address"
}

kubelet_ours() {
  launch kubelet "$(fact karve)" kubelet --kubeconfig "$dir/kubelet.conf" --data-dir "$dir/karve" \
    --container-runtime-endpoint "unix://$(cri_socket)" --root-dir "$dir/kubelet" \
    --pod-logs-dir "$dir/pod-logs" --cgroup-root "/kv$(tag)" --cluster-dns "$dns_service" \
    --client-ca-file "$dir/pki/ca.crt" --hostname-override "$node" --node-ip "$node_address" \
    --eviction-hard "memory.available<10Mi,nodefs.available<10Mi,imagefs.available<10Mi"
}

# The conntrack limits are the machine's, which a network namespace may not change.
kube-proxy_upstream() {
  launch kube-proxy "$bin/kube-proxy" --kubeconfig="$dir/proxy.conf" --hostname-override="$node" \
    --proxy-mode=iptables --cluster-cidr="$pod_subnet" --oom-score-adj=0 --metrics-bind-address=127.0.0.1:10249 \
    --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0
}

kube-proxy_ours() {
  launch kube-proxy "$(fact karve)" kube-proxy --kubeconfig "$dir/proxy.conf" --hostname-override "$node" \
    --cluster-cidr "$pod_subnet" --data-dir "$dir/karve"
}

# fact NAME [DEFAULT]: what the start was told.
fact() {
  cat "$dir/own/facts/$1" 2>/dev/null || echo "${2:-}"
}

note() {
  mkdir -p "$dir/own/facts"
  echo "$2" >"$dir/own/facts/$1"
}

launch_component() {
  "$1_$(fact "side-$1" upstream)"
}

# A proxy's rules outlive it. Those of the side that goes are removed when the other's have had time to stand.
clean_after() {
  [[ $1 == kube-proxy ]] || return 0
  sleep 2
  case $2 in
    upstream) "$bin/kube-proxy" --cleanup --oom-score-adj=0 >>"$dir/logs/kube-proxy.log" 2>&1 || true ;;
    ours) "$(fact karve)" kube-proxy --cleanup --kubeconfig "$dir/proxy.conf" >>"$dir/logs/kube-proxy.log" 2>&1 || true ;;
  esac
}

swap() {
  local name=$1 to=$2 from
  from=$(fact "side-$name" upstream)
  [[ $from != "$to" ]] || return 0
  [[ -z ${KARVE:-} ]] || note karve "$KARVE"
  mv "$dir/logs/$name.log" "$dir/logs/$name-before-$to.log"
  # An API server that ends in peace waits for its watchers, longer than leaders keep their leases.
  end "$name" 2
  note "side-$name" "$to"
  launch_component "$name"
  [[ $name != kube-apiserver ]] || { wait_for 60 kube-apiserver get /readyz && revive; }
  clean_after "$name" "$from"
}

# Upstream's leaders end when they lose their lease, and whatever manages the machine starts them again. They give up ten
# seconds after they last could renew it.
revive() {
  local deadline=$((SECONDS + 30)) name
  while [[ $SECONDS -lt $deadline ]]; do
    for name in kube-controller-manager kube-scheduler; do
      is_running "$name" || launch_component "$name"
    done
    sleep 0.5
  done
}

# As pods cannot be pulled from anywhere, cluster DNS is a process of the node behind a Service without a selector.
launch_dns() {
  cat >"$dir/Corefile" <<EOF
.:53 {
  bind $node_address
  errors
  health 127.0.0.1:8080
  kubernetes cluster.local in-addr.arpa ip6.arpa {
    kubeconfig $dir/admin.conf
    pods insecure
  }
  cache 30
}
EOF
  launch coredns "$bin/coredns" -conf "$dir/Corefile"
}

publish_dns() {
  local ports='"ports":[{"name":"dns","protocol":"UDP","port":53},{"name":"dns-tcp","protocol":"TCP","port":53}]'
  create /api/v1/namespaces/kube-system/services '{"metadata":{"name":"kube-dns"},
    "spec":{"clusterIP":"'$dns_service'",'"$ports"'}}'
  create /apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices '{"metadata":{"name":"kube-dns",
    "labels":{"kubernetes.io/service-name":"kube-dns"}},"addressType":"IPv4",'"$ports"',
    "endpoints":[{"addresses":["'$node_address'"],"nodeName":"'$node'","conditions":{"ready":true}}]}'
}

# The agent's name is set because the API server indents its JSON for curl.
get() {
  curl --silent --fail --user-agent interop --cacert "$dir/pki/ca.crt" --cert "$dir/pki/admin.crt" \
    --key "$dir/pki/admin.key" "$api$1" "${@:2}"
}

create() {
  get "$1" --show-error --header 'Content-Type: application/json' --data "$2" >/dev/null
}

# Ready, in either server's order of fields, and heard from since the start: after a restart the node's object is still that of before.
node_ready() {
  get "/api/v1/nodes/$node" | grep -qE '"type":"Ready","status":"True"|"status":"True","type":"Ready"' || return 1
  local heard
  heard=$(get "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/$node" | grep -oE '"renewTime":"[^"]*"')
  [[ ${heard:13} > "$since" ]]
}

milliseconds_since() {
  local now=${EPOCHREALTIME/./}
  echo $(((now - ${1/./}) / 1000))
}

start() {
  local archives
  [[ ! -e $dir/own ]] || fail "$dir is in use; run 'stop $dir' first"
  mkdir -p "$dir/own"
  [[ -z ${KARVE:-} ]] || note karve "$KARVE"
  [[ -z ${STORE:-} ]] || note store "$STORE"
  local name
  for name in ${OURS:-}; do
    note "side-$name" ours
  done
  "$interop/build.sh" etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy coredns >/dev/null
  # shellcheck disable=SC2086 # A list of words.
  mapfile -t archives < <("$interop/images.sh" ${IMAGES:-pause busybox agnhost})
  touch "$dir/netns"
  unshare --net="$dir/netns" true
  exec nsenter --net="$dir/netns" "$interop/upstream-cluster.sh" start-inside "$dir" "${archives[@]}"
}

start_inside() {
  ip link set lo up
  add_bridge "kvn$(tag)" "$node_address/32"
  # It leads nowhere, but without a route no packet reaches the rules that turn a service's address into a pod's.
  ip route add default dev "kvn$(tag)"
  sysctl -qw net.bridge.bridge-nf-call-iptables=1
  make_certificates
  write_kubelet_config
  make_cgroups
  note_machine_paths
  start_runtime "$@"
  launch_timed
  publish_dns
  echo "kubeconfig $dir/admin.conf"
  echo "netns $dir/netns"
  echo "cri $(cri_socket)"
}

# A control plane for load: its components ask as often as they like.
start_control() {
  mkdir -p "$dir/own"
  "$interop/build.sh" etcd kube-apiserver "$@" >/dev/null
  touch "$dir/netns"
  unshare --net="$dir/netns" true
  exec nsenter --net="$dir/netns" "$interop/upstream-cluster.sh" start-control-inside "$dir" "$@"
}

start_control_inside() {
  ip link set lo up
  add_bridge "kvn$(tag)" "$node_address/32"
  ip route add default dev "kvn$(tag)"
  make_certificates
  note requests unlimited
  local began=$EPOCHREALTIME name
  launch_apiserver
  wait_for 60 kube-apiserver get /readyz
  echo "readyz_ms $(milliseconds_since "$began")"
  for name in "$@"; do
    launch_component "$name"
  done
}

# Flags by which a component of a control plane for load does not hold its requests back.
request_limits() {
  [[ $(fact requests limited) == limited ]] || echo "--kube-api-qps=10000 --kube-api-burst=10000"
}

launch_timed() {
  local began readyz node_ready pods_admitted
  since=$(date --utc +%Y-%m-%dT%H:%M:%S.%6NZ)
  began=$EPOCHREALTIME
  launch_apiserver
  wait_for 60 kube-apiserver get /readyz
  readyz=$(milliseconds_since "$began")
  launch_node
  launch_controllers
  wait_for 60 kubelet node_ready
  node_ready=$(milliseconds_since "$began")
  wait_for 60 kube-controller-manager get /api/v1/namespaces/default/serviceaccounts/default
  pods_admitted=$(milliseconds_since "$began")
  launch_dns
  echo "readyz_ms $readyz"
  echo "node_ready_ms $node_ready"
  echo "pods_admitted_ms $pods_admitted"
}

restart() {
  end_processes
  exec nsenter --net="$dir/netns" "$interop/upstream-cluster.sh" restart-inside "$dir"
}

# The node goes first, while its API server can still hear of it.
end_processes() {
  local name
  for name in coredns kubelet kube-proxy kube-scheduler kube-controller-manager; do
    end "$name"
  done
  [[ ${1:-} == node ]] || { end kube-apiserver; end etcd; }
}

# Two places that the kubelet uses are fixed in it. What was not there before is removed again.
note_machine_paths() {
  local path
  for path in /var/lib/kubelet/device-plugins /var/lib/kubelet /var/log/containers; do
    [[ -e $path ]] || echo "$path" >>"$dir/own/made"
  done
}

remove_machine_paths() {
  local link path
  for link in /var/log/containers/*; do
    [[ $(readlink "$link") != "$dir"/* ]] || rm -f "$link"
  done
  [[ -e $dir/own/made ]] || return 0
  while read -r path; do
    rm -f "$path/kubelet.sock" "$path/DEPRECATION"
    rmdir "$path" 2>/dev/null || true
  done <"$dir/own/made"
}

measure() {
  local file name pid
  for file in "$dir"/own/pids/* "$dir"/cri/own/pids/*; do
    [[ -e $file ]] || continue
    name=${file##*/}
    read -r pid _ <"$file"
    awk -v name="$name" '
      /^Pss:/ { pss = $2 } /^Rss:/ { rss = $2 }
      # Ticks of 10 ms in user and kernel mode, counted after the command name.
      / \(/ { sub(/.*\) /, ""); cpu = ($12 + $13) * 10 }
      END { print name, pss, rss, cpu }' "/proc/$pid/smaps_rollup" "/proc/$pid/stat"
  done
}

stop() {
  local inside=()
  ! mountpoint -q "$dir/netns" || inside=(nsenter --net="$dir/netns")
  end_processes node
  remove_second_node
  [[ ! -e $dir/cri ]] || "${inside[@]}" "$interop/containerd.sh" stop "$dir/cri"
  # It ends the runtime, too.
  [[ ! -e $dir/runtime ]] ||
    "${inside[@]}" "$(fact karve)" reset --name "kv$(tag)" --data-dir "$dir/runtime" >>"$dir/logs/runtime.log" 2>&1 || true
  end runtime
  end_processes
  unmount_below "$dir"
  remove_cgroups "kv$(tag)"
  remove_machine_paths
  local entry
  for entry in "$dir"/*; do
    case $entry in
      "$dir/logs" | "$dir/own") ;;
      "$dir/cri") rm -rf "$dir/logs/cri" && mkdir -p "$dir/logs" && mv "$dir/cri/logs" "$dir/logs/cri" && rm -rf "$dir/cri" ;;
      *) rm -rf --one-file-system "$entry" ;;
    esac
  done
  rm -rf "$dir/own"
}

[[ $# -ge 2 ]] || fail "usage: upstream-cluster.sh start|start-control|restart|swap|bounce|add-node|lose-node|measure|stop DIR …"
verb=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd)
shift 2
bin=$("$interop/build.sh" --path)
case $verb in
  start) start ;;
  start-control) start_control "$@" ;;
  start-control-inside) start_control_inside "$@" ;;
  restart) restart ;;
  start-inside) start_inside "$@" ;; # What start and restart run in the network namespace.
  restart-inside) launch_timed ;;
  swap | bounce | add-node | lose-node)
    exec nsenter --net="$dir/netns" "$interop/upstream-cluster.sh" "$verb-inside" "$dir" "$@"
    ;;
  swap-inside) swap "$@" ;;
  bounce-inside) bounce "$@" ;;
  add-node-inside) add_node ;;
  second-inside) add_node_inside "$@" ;; # What add-node runs in the second namespace.
  lose-node-inside) lose_node ;;
  measure) measure ;;
  stop) stop ;;
  *) fail "unknown verb '$verb'; there are start, start-control, restart, swap, bounce, add-node, lose-node, measure and stop" ;;
esac
