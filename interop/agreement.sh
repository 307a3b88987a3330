#!/usr/bin/env bash
# Asks upstream's API server what it makes of each object in crates/api/facts/agreement/requests.jsonl and records the
# answers beside them, for the test in crates/api that holds our rules to them.
#
#   interop/agreement.sh
#
# A line of requests.jsonl is {"path": collection, "object": …}; the same line of answers.jsonl is the object as it would
# be stored, or the Status that refuses it. Admission is switched off, because its plugins are not rules of a kind.
# Everything runs in a network namespace and a directory of its own. Needs root, curl, jq and openssl.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[[ ${1:-} == inside ]] || exec unshare --net -- "$0" inside
ip link set lo up

facts=$interop/../crates/api/facts/agreement
dir=$(mktemp -d)
trap 'end kube-apiserver; end etcd; rm -rf "$dir"' EXIT
start_api_server

# Times and random parts would make every recording differ.
strip='del(.metadata.managedFields, .metadata.creationTimestamp, .metadata.uid, .metadata.resourceVersion)'
while IFS= read -r line; do
  path=$(jq --raw-output .path <<<"$line")
  jq --compact-output .object <<<"$line" >object.json
  ask --header "Content-Type: application/json" --data @object.json "$api$path?dryRun=All" |
    jq --compact-output --sort-keys "$strip"
done <"$facts/requests.jsonl" >answers.jsonl
mv answers.jsonl "$facts/answers.jsonl"
echo "recorded $(wc -l <"$facts/answers.jsonl") answers"
