#!/usr/bin/env bash
# A Debian package of this checkout: program, unit, configuration, manual pages, completions.
#   deploy/debian/build.sh [OPTION...]    options of cargo deb, e.g. --output target/kvbridge.deb
# It needs cargo-deb (cargo install cargo-deb --locked) and dpkg. [package.metadata.deb] in Cargo.toml says what is in it.
set -euo pipefail
cd "$(dirname "$0")/../.."
KVBRIDGE_COMMIT=${KVBRIDGE_COMMIT:-$(git rev-parse --short=12 HEAD 2>/dev/null || true)}
export KVBRIDGE_COMMIT
cargo build --release --locked --bin kvbridge
program=${CARGO_TARGET_DIR:-target}/release/kvbridge
# What the program itself writes; Cargo.toml names these files.
made=target/package
rm -rf "$made"
mkdir -p "$made"
"$program" man "$made/man"
for shell in bash zsh fish; do "$program" completions "$shell" >"$made/kvbridge.$shell"; done
exec cargo deb --no-build --locked "$@"
