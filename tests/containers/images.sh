#!/usr/bin/env bash
# Makes the images that Dockerfile and docker-compose.yml name available, each only if it is missing: from a registry, or,
# where none can be reached, a stand-in of the same name made of this machine's Debian mirror and Rust
# toolchain. A stand-in also believes the certificate authorities that this machine believes, because a
# network that hides registries often re-signs what it lets through. Nothing of that is in our own images.
set -euo pipefail
readonly BASE=debian:bookworm-slim RUST=rust:1.95-slim-bookworm NATS=nats:2.15 PROMETHEUS=prom/prometheus:v3.5.0
readonly CA=/etc/ssl/certs/ca-certificates.crt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

have() {
    docker image inspect "$1" >/dev/null 2>&1 || timeout 120 docker pull -q "$1" 2>/dev/null
}

base() {
    command -v debootstrap >/dev/null || { echo "images: needs debootstrap (and root)" >&2; return 1; }
    local root=$work/root mirror
    mirror=$(awk '/^URIs:/ { print $2; exit }' /etc/apt/sources.list.d/debian.sources 2>/dev/null || true)
    debootstrap --variant=minbase bookworm "$root" "${mirror:-http://deb.debian.org/debian}" >&2
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    rm -rf "$root"/usr/share/{man,locale,doc}
    tar -C "$root" --numeric-owner -c . | docker import -c 'CMD ["bash"]' - "$BASE" >&2
}

rust() {
    local toolchain
    toolchain=$(rustc --print sysroot)
    cat >"$work/Dockerfile" <<'END'
FROM debian:bookworm-slim
RUN apt-get update -q && apt-get install -y --no-install-recommends gcc libc6-dev ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY toolchain/ /usr/local/rust/
# Beside the system's bundle, which installing a package would write anew.
COPY host-authorities.crt /etc/ssl/host-authorities.crt
ENV PATH=/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    CARGO_HOME=/usr/local/cargo SSL_CERT_FILE=/etc/ssl/host-authorities.crt \
    CARGO_HTTP_CAINFO=/etc/ssl/host-authorities.crt
END
    cp "$CA" "$work/host-authorities.crt"
    # Without share/, which is documentation and larger than the rest.
    tar -c -C "$work" Dockerfile host-authorities.crt \
        -C "$toolchain" --transform 's,^\./\(bin\|lib\|libexec\|etc\),toolchain/\1,' \
        $(cd "$toolchain" && ls -d ./bin ./lib ./libexec ./etc 2>/dev/null) |
        docker build -q -t "$RUST" - >&2
}

# The server that the tests run, alone, as in the official image.
nats() {
    mkdir "$work/nats"
    cp "$(tests/peers/ensure_nats.sh)" "$work/nats/nats-server"
    printf 'FROM debian:bookworm-slim\nCOPY nats-server /nats-server\nENTRYPOINT ["/nats-server"]\n' \
        >"$work/nats/Dockerfile"
    docker build -q -t "$NATS" "$work/nats" >&2
}

# Debian's, an older release with the same rules and flags.
prometheus() {
    printf '%s\n' 'FROM debian:bookworm-slim' \
        'RUN apt-get update -q && apt-get install -y --no-install-recommends prometheus && rm -rf /var/lib/apt/lists/*' \
        'RUN mkdir -p /prometheus && chown nobody /prometheus' 'USER nobody' 'ENTRYPOINT ["prometheus"]' \
        'CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]' |
        docker build -q -t "$PROMETHEUS" - >&2
}

have "$BASE" >&2 || base
# A program that was built before needs no toolchain.
[ "${KVBRIDGE_TARGET:-}" = runtime-prebuilt ] || have "$RUST" >&2 || rust
have "$NATS" >&2 || nats
[ "${1:-}" != ha ] || have "$PROMETHEUS" >&2 || prometheus
