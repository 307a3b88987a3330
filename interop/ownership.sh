#!/usr/bin/env bash
# Asks upstream's API server everything in crates/apiserver/facts/ownership/requests.jsonl, in that order, and records
# the answers beside them, for the test in crates/apiserver that holds field ownership, patches and apply to them.
#
#   interop/ownership.sh
#
# A line of requests.jsonl is {"note", "method", "path", "type", "agent", "body"}; the same line of answers.jsonl is {"code",
# "warnings", "body"}. Everything runs in a network namespace and a directory of its own. Needs root, curl, jq and openssl.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[[ ${1:-} == inside ]] || exec unshare --net -- "$0" inside
ip link set lo up

facts=$interop/../crates/apiserver/facts/ownership
dir=$(mktemp -d)
trap 'end kube-apiserver; end etcd; rm -rf "$dir"' EXIT
start_api_server

# Times and random parts would make every recording differ.
strip='if type == "object" and .metadata then
  del(.metadata.creationTimestamp, .metadata.uid, .metadata.resourceVersion, .metadata.managedFields[]?.time) else . end'
while IFS= read -r line; do
  field() { jq --raw-output "$1" <<<"$line"; }
  field 'if .body | type == "string" then .body else .body | tojson end' >body
  code=$(ask --request "$(field .method)" --header "Content-Type: $(field .type)" --user-agent "$(field .agent)" \
    --data-binary @body --dump-header headers --output answer --write-out '%{http_code}' "$api$(field .path)")
  warnings=$(sed -n 's/^[Ww]arning: 299 - //p' headers | tr -d '\r' | jq --slurp --compact-output .)
  jq --compact-output --sort-keys "$strip | {code: $code, warnings: $warnings, body: .}" answer
done <"$facts/requests.jsonl" >answers.jsonl
mv answers.jsonl "$facts/answers.jsonl"
echo "recorded $(wc -l <"$facts/answers.jsonl") answers"
