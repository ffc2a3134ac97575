# The menu. What counts is .ci/run; a recipe is one line and has no logic.

# list the recipes
default:
    @just --list

# what a commit must pass
ci:
    bash .ci/run

# the pure core alone, in seconds
fast:
    cargo test -p kvbridge --no-default-features --features planted

# one simulator run with its whole trace
sim seed="0":
    KVBRIDGE_SIM_SEED={{seed}} cargo test --workspace --features planted --test sim one_seed -- --nocapture

# write new golden files, then read the diff; old ones never change
golden:
    UPDATE_EXPECT=1 cargo test -p kvbridge-schemas --test golden

# three modelled engines, their faults, and the page
demo *arguments:
    cargo run --release -- demo {{arguments}}

# a recording as an engine, for another process to read
play file="tests/fixtures/vllm-0.32.0-basic.jsonl" *arguments:
    cargo run --release -- play {{file}} {{arguments}}

# the page in a real Chromium; screenshots go to the folder
page folder="target/page":
    tests/page/run.sh {{folder}}

# everything that .ci/run leaves out
full: ci page compose soak sim-long fuzz bench alerts advisories

# the shipped docker-compose.yml, really brought up, plain or `ha`; needs a Docker daemon
compose *profile:
    tests/containers/compose.sh {{profile}}

# thousands of seeds of both simulators, from one on, in an optimised build; prints how many faults of which kind
sim-long seeds="5000" first="0":
    KVBRIDGE_SIM_SEEDS={{seeds}} KVBRIDGE_SIM_FIRST={{first}} cargo test --profile sim -p kvbridge --no-default-features --features planted --test sim --test bus_sim fixed_seeds -- --nocapture

# every fuzz target, seconds each; needs cargo-fuzz
fuzz seconds="120":
    python3 fuzz/seed.py
    RUSTC_BOOTSTRAP=1 cargo fuzz run decode_vllm -- -max_total_time={{seconds}}
    RUSTC_BOOTSTRAP=1 cargo fuzz run decode_sglang -- -max_total_time={{seconds}}
    RUSTC_BOOTSTRAP=1 cargo fuzz run answers_sglang -- -max_total_time={{seconds}}
    RUSTC_BOOTSTRAP=1 cargo fuzz run decode_trtllm -- -max_total_time={{seconds}}
    RUSTC_BOOTSTRAP=1 cargo fuzz run decode_trtllm_native -- -max_total_time={{seconds}}
    RUSTC_BOOTSTRAP=1 cargo fuzz run codec -- -max_total_time={{seconds}}

# decoding and the codec of the bus, measured by CPU time
bench:
    cargo run --release --manifest-path benches/decode/Cargo.toml
    cargo run --release --manifest-path benches/decode/Cargo.toml --bin polled
    cargo run --release --manifest-path benches/decode/Cargo.toml --bin codec

# from an engine's socket to the index, beside Dynamo's indexer: --python is one that has ai-dynamo 1.6.1
bench-pipeline *arguments:
    cargo build --release --bin kvbridge
    cargo run --release --manifest-path benches/pipeline/Cargo.toml -- {{arguments}}

# publishing and replay beside a bare client, against a real nats-server
bench-bus *arguments:
    cargo run --release --manifest-path benches/bus/Cargo.toml -- {{arguments}}

# instructions a block of the hot paths, by callgrind; `--write` keeps what it finds
guard *arguments:
    cargo build --release --manifest-path benches/guard/Cargo.toml
    python3 benches/guard/check.py benches/guard/target/release/bench-guard {{arguments}}

# the reported experiment, simulated: tables of docs/experiments.md
experiment *arguments:
    cargo run --release --manifest-path benches/experiment/Cargo.toml -- {{arguments}}

# our index beside those of other routers, and bytes per block; a Mooncake trace with --mooncake FILE
bench-peers *arguments:
    cargo run --release --manifest-path benches/peers/Cargo.toml -- {{arguments}}
    cargo run --release --manifest-path benches/peers/Cargo.toml --bin memory

# the tables of docs/performance.md as a picture
plot:
    python3 benches/peers/plot.py

# the alert rules, by promtool (Debian has it in the package prometheus)
alerts:
    promtool check rules deploy/prometheus/alerts.yml
    promtool test rules deploy/prometheus/alerts_test.yml

# known vulnerabilities; needs the network and cargo-deny
advisories:
    cargo deny check

# two million batches through the real process: does its memory grow?
soak *arguments:
    cargo build --release --bin kvbridge
    python3 tests/soak/rss.py {{arguments}}

# a real engine from PyPI (vllm-0.16, vllm-0.32, sglang-0.5.23), read by a kvbridge that is asked what it holds; gigabytes
engines engine="vllm-0.16" *arguments:
    cargo build --release --bin kvbridge
    tests/engines/run.sh {{engine}} {{arguments}}

# kill -9 of every process at random under load, then a full disk and no files; ten minutes
soak-kills *arguments:
    cargo build --release --bin kvbridge
    python3 tests/soak/kills.py {{arguments}}

# a thousand replicas that are all learnt at once
soak-fleet *arguments:
    cargo build --release --bin kvbridge
    python3 tests/soak/fleet.py {{arguments}}

# Dynamo's own selection service, fed by engines directly and through sinks; PYTHON as tests/sinks/dynamo.py says
sinks-select python *arguments:
    cargo build --bin kvbridge
    {{python}} tests/sinks/dynamo_select.py {{arguments}}

# a hundred replicas through a bridge, nats-server and an index: how old are its views?
soak-bus *arguments:
    cargo build --release --bin kvbridge
    python3 tests/soak/bus.py {{arguments}}
