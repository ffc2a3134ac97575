#!/usr/bin/env bash
# The page in a real, headless Chromium, against the real program and modelled engines.
#   tests/page/run.sh [FOLDER]     screenshots go to FOLDER [default: target/page]
# It needs a system chromium (CHROMIUM names another than /usr/bin/chromium) and installs its driver
# into target/browser, once. Where there is no browser it fails, and says how to get one.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
export CHROMIUM=${CHROMIUM:-/usr/bin/chromium}
if ! [ -x "$CHROMIUM" ]; then
    echo "no $CHROMIUM: apt-get install --no-install-recommends chromium fonts-dejavu-core" >&2
    exit 1
fi
venv=$root/target/browser
mkdir -p "$root/target"
exec 9>"$root/target/browser.lock"
flock 9
if ! cmp --silent tests/page/requirements.txt "$venv/requirements.txt"; then
    python3 -m venv --clear "$venv" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r tests/page/requirements.txt >&2
    cp tests/page/requirements.txt "$venv/requirements.txt"
fi
exec 9>&-
cargo build --bin kvbridge
export KVBRIDGE=${CARGO_TARGET_DIR:-target}/debug/kvbridge
exec timeout 300 "$venv/bin/python" tests/page/check.py "${1:-target/page}"
