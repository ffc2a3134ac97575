#!/usr/bin/env bash
# usage: venv.sh NAME REQUIREMENTS IMPORTS
# Makes target/NAME with what a file of requirements names, once, and prints the path of its python.
# Tests run at the same time in many processes, so the work is done under a lock.
# A failure is a test failure: peers that are not our own code are what the tests are for.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
wanted=$root/tests/peers/$2
venv=$root/target/$1
made=$venv/$(sha256sum "$wanted" | cut -c1-16)
mkdir -p "$root/target"
exec 9>"$venv.lock"
flock 9
if ! [ -e "$made" ]; then
    python3 -m venv --clear "$venv" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$wanted" >&2
    "$venv/bin/python" -c "import $3" >&2
    touch "$made"
fi
echo "$venv/bin/python"
