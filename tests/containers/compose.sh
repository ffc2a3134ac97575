#!/usr/bin/env bash
# Builds and brings up the shipped docker-compose.yml, compares what bridge and index believe with what the
# engine has, reads the bus between them, restarts the engine, compares again, and takes everything down. Needs a Docker daemon and
# docker-compose; `docker compose` is used where it is installed.
#   compose.sh        what is up without a profile
#   compose.sh ha     the profile ha: a bridge is killed and a NATS server restarted besides
# KVBRIDGE_TARGET=runtime-prebuilt takes dist/kvbridge instead of building the program.
set -euo pipefail
cd "$(dirname "$0")/../.."
profile=${1:-}

tests/containers/images.sh "$profile"
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
for name in ENGINE ENGINE_SGLANG ENGINE_TRTLLM KVBRIDGE BRIDGE_B INDEX INDEX_B NATS PROMETHEUS GRAFANA; do
    declare -x "${name}_PORT=$(free_port)"
done
KVBRIDGE_COMMIT=${KVBRIDGE_COMMIT:-$(git rev-parse --short=12 HEAD)}
export KVBRIDGE_COMMIT COMPOSE_PROJECT_NAME=kvbridge-test
options=()
[ "$profile" != ha ] || options=(--env-file deploy/ha.env)
compose() {
    if docker compose version >/dev/null 2>&1; then docker compose "${options[@]}" "$@"; else docker-compose "${options[@]}" "$@"; fi
}
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
check() {
    local engine=$1 port=$2
    shift 2
    python3 tests/containers/check.py "http://127.0.0.1:$engine" "http://127.0.0.1:$port" "$@"
}
kvbridge() { compose run --rm --no-deps -T kvbridge "$@" --nats nats://nats:4222; }

plain() {
    compose up -d
    local service first epoch code
    for service in engine kvbridge index; do healthy "$service"; done
    first=$(check "$ENGINE_PORT" "$KVBRIDGE_PORT" --epoch-above 0)
    echo "compose: $first"
    echo "compose: the index: $(check "$ENGINE_PORT" "$INDEX_PORT" --epoch-above 0)"
    kvbridge tail --since 10m --count 2
    kvbridge bus status
    compose restart -t 10 engine
    healthy engine
    epoch=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["epoch"])' "$first")
    echo "compose: after a restart of the engine: $(check "$ENGINE_PORT" "$KVBRIDGE_PORT" --epoch-above "$epoch")"
    echo "compose: the index: $(check "$ENGINE_PORT" "$INDEX_PORT" --epoch-above "$epoch")"
    # An orderly end: SIGTERM is handled by the process itself, without an init in front of it.
    compose stop -t 20
    for service in engine kvbridge index; do
        code=$(docker inspect -f '{{.State.ExitCode}}' "$(docker ps -aq \
            --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" \
            --filter "label=com.docker.compose.service=$service")")
        echo "compose: $service ended with $code"
        [ "$code" -eq 0 ]
    done
}

# Every engine against each of the ports that are named.
fleet() {
    local port
    for port in "$@"; do
        echo "compose: vllm at $port: $(check "$ENGINE_PORT" "$port" --instance engine:8000)"
        echo "compose: sglang at $port: $(check "$ENGINE_SGLANG_PORT" "$port" --instance engine-sglang:8000)"
        echo "compose: trtllm at $port: $(check "$ENGINE_TRTLLM_PORT" "$port" --instance engine-trtllm:8000)"
    done
}

# What Prometheus says of a query, as a number.
asked() {
    curl -sf "http://127.0.0.1:$PROMETHEUS_PORT/api/v1/query" --data-urlencode "query=$1" |
        python3 -c 'import json, sys; found = json.load(sys.stdin)["data"]["result"]; print(found[0]["value"][1] if found else 0)'
}

# Waits until Prometheus says so.
until_asked() {
    local deadline=$((SECONDS + 60))
    until [ "$(asked "$1")" = "$2" ]; do
        [ "$SECONDS" -lt "$deadline" ] || { echo "compose: $1 is $(asked "$1"), not $2" >&2; return 1; }
        sleep 0.5
    done
    echo "compose: $1 = $2"
}

ha() {
    local service services=(nats nats-b nats-c engine engine-sglang engine-trtllm kvbridge bridge-b index index-b prometheus)
    if docker image inspect grafana/grafana:12.1.0 >/dev/null 2>&1 || timeout 120 docker pull -q grafana/grafana:12.1.0; then
        services+=(grafana)
    else
        echo "compose: without grafana, whose image cannot be had here"
    fi
    compose up -d "${services[@]}"
    for service in engine engine-sglang engine-trtllm kvbridge bridge-b index index-b; do healthy "$service"; done
    fleet "$KVBRIDGE_PORT" "$BRIDGE_B_PORT" "$INDEX_PORT" "$INDEX_B_PORT"
    kvbridge bus status
    until_asked 'sum(up)' 4
    until_asked 'count(max by (replica) (kvbridge_readiness{state="exact"}) == 1)' 3
    # Its twin goes on, and has the drained engine to itself.
    compose kill -s KILL kvbridge
    compose restart -t 10 nats-b
    echo "compose: one bridge killed, one NATS server restarted"
    fleet "$BRIDGE_B_PORT" "$INDEX_PORT" "$INDEX_B_PORT"
    until_asked 'sum(up)' 3
    compose up -d kvbridge
    healthy kvbridge
    fleet "$KVBRIDGE_PORT" "$INDEX_B_PORT"
    if [[ " ${services[*]} " == *" grafana "* ]]; then
        curl -sf "http://127.0.0.1:$GRAFANA_PORT/api/dashboards/uid/kvbridge" | grep -q '"title":"kvbridge"'
        echo "compose: grafana has the dashboard"
    fi
}

# Through the builder that every client has: BuildKit is a plug-in of newer ones.
compose build
case "$profile" in
    "") plain ;;
    ha) ha ;;
    *) echo "compose: no profile $profile" >&2; exit 2 ;;
esac
