#!/usr/bin/env bash
# Makes target/smg with SMG's own protobuf messages for python, once, and prints the path of its python.
# Tests run at the same time in many processes, so the work is done under a lock.
# A failure is a test failure: a peer that is not our own code is what the tests are for.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
wanted=$root/tests/peers/smg-requirements.txt
venv=$root/target/smg
made=$venv/$(sha256sum "$wanted" | cut -c1-16)
mkdir -p "$root/target"
exec 9>"$root/target/smg.lock"
flock 9
if ! [ -e "$made" ]; then
    python3 -m venv --clear "$venv" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$wanted" >&2
    "$venv/bin/python" -c 'import grpc, smg_grpc_proto' >&2
    touch "$made"
fi
echo "$venv/bin/python"
