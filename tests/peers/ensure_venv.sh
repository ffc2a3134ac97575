#!/usr/bin/env bash
# Makes target/venv with pyzmq for the test peers, once, and prints the path of its python.
# Tests run at the same time in many processes, so the work is done under a lock.
# A failure is a test failure: peers that are not our own library are what the tests are for.
set -euo pipefail
PYZMQ=27.1.0
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=$root/target/venv
mkdir -p "$root/target"
exec 9>"$root/target/venv.lock"
flock 9
if ! [ -e "$venv/pyzmq-$PYZMQ" ]; then
    python3 -m venv --clear "$venv" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "pyzmq==$PYZMQ" >&2
    "$venv/bin/python" -c 'import zmq' >&2
    touch "$venv/pyzmq-$PYZMQ"
fi
echo "$venv/bin/python"
