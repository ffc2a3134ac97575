#!/usr/bin/env bash
# Builds and brings up the shipped docker-compose.yml, compares what bridge and index believe with what the
# engine has, reads the bus between them, restarts the engine, compares again, and takes everything down. Needs a Docker daemon and
# docker-compose; `docker compose` is used where it is installed.
set -euo pipefail
cd "$(dirname "$0")/../.."

tests/containers/images.sh
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
ENGINE_PORT=$(free_port)
KVBRIDGE_PORT=$(free_port)
INDEX_PORT=$(free_port)
NATS_PORT=$(free_port)
KVBRIDGE_COMMIT=${KVBRIDGE_COMMIT:-$(git rev-parse --short=12 HEAD)}
export ENGINE_PORT KVBRIDGE_PORT INDEX_PORT NATS_PORT KVBRIDGE_COMMIT COMPOSE_PROJECT_NAME=kvbridge-test
compose() { if docker compose version >/dev/null 2>&1; then docker compose "$@"; else docker-compose "$@"; fi; }
down() {
    local code=$?
    [ "$code" -eq 0 ] || compose logs --tail=50 || true
    compose down -v --remove-orphans -t 10
    exit "$code"
}
trap down EXIT

healthy() {
    local service=$1 id deadline=$((SECONDS + 90))
    id=$(compose ps -q "$service")
    until [ "$(docker inspect -f '{{.State.Health.Status}}' "$id")" = healthy ]; do
        [ "$SECONDS" -lt "$deadline" ] || { echo "compose: $service is not healthy" >&2; return 1; }
        sleep 0.2
    done
}

# Through the builder that every client has: BuildKit is a plug-in of newer ones.
compose build
compose up -d
healthy engine
healthy kvbridge
healthy index
check() {
    local port=$1
    shift
    python3 tests/containers/check.py "http://127.0.0.1:$ENGINE_PORT" "http://127.0.0.1:$port" "$@"
}
kvbridge() { compose run --rm --no-deps -T kvbridge "$@" --nats nats://nats:4222; }
first=$(check "$KVBRIDGE_PORT" --epoch-above 0)
echo "compose: $first"
echo "compose: the index: $(check "$INDEX_PORT" --epoch-above 0)"
kvbridge tail --since 10m --count 2
kvbridge bus status
compose restart -t 10 engine
healthy engine
epoch=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["epoch"])' "$first")
echo "compose: after a restart of the engine: $(check "$KVBRIDGE_PORT" --epoch-above "$epoch")"
echo "compose: the index: $(check "$INDEX_PORT" --epoch-above "$epoch")"
# An orderly end: SIGTERM is handled by the process itself, without an init in front of it.
compose stop -t 20
for service in engine kvbridge index; do
    code=$(docker inspect -f '{{.State.ExitCode}}' "$(docker ps -aq \
        --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" \
        --filter "label=com.docker.compose.service=$service")")
    echo "compose: $service ended with $code"
    [ "$code" -eq 0 ]
done
