#!/usr/bin/env bash
# Installs the Python client of python/requirements.txt, on demand and once, and prints the path of a python that has it.
# It goes to ${KARVE_CACHE:-$HOME/.cache/karve}/python/<the requirements' hash>, never into the repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/python"

cache=${KARVE_CACHE:-$HOME/.cache/karve}/python
venv=$cache/$(sha256sum requirements.txt | cut -c1-16)
mkdir -p "$cache"
# Concurrent callers wait here and then find the work done.
exec 9>"$venv.lock"
flock 9
if [[ ! -e $venv/complete ]]; then
  echo "installing the Python client" >&2
  rm -rf "$venv"
  python3 -m venv "$venv" >&2 || {
    echo "python.sh: python3 -m venv does not work; on Debian install python3-venv" >&2
    exit 1
  }
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement requirements.txt >&2
  touch "$venv/complete"
fi
echo "$venv/bin/python"
