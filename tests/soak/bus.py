#!/usr/bin/env python3
"""How far an index lags behind its engines: ranks of a fake engine through a bridge, a real nats-server
and an index, all on this machine. Prints the batches a second that arrived and the age of the views, in
the bridge and in the index. An age is the time since the newest batch that is folded was made: the pause
between two batches is part of it. A step without events sends nothing, so that a few steps make a batch.
Every view of the index must be exact at the end. Standard library only.

usage: bus.py [--binary FILE] [--replicas N] [--step-ms N] [--rps N] [--seconds N]
"""

import argparse
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0
LOOK_S = 0.2
AGE = re.compile(r'^kvbridge_cursor_age_seconds\{replica="[^"]*"\} (\S+)$', re.MULTILINE)


def ask(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def server(folder):
    script = ROOT / "tests" / "peers" / "ensure_nats.sh"
    binary = subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = pathlib.Path(folder) / "nats.conf"
    config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}/store" }}\n')
    process = subprocess.Popen([binary, "-c", config], stderr=subprocess.DEVNULL)
    return process, f"nats://127.0.0.1:{port}"


def kvbridge(args, folder, *more):
    command = [args.binary, "--log", "error", *more]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)


def run(args, folder, config, url):
    path = pathlib.Path(folder) / f"{config[0]}.toml"
    path.write_text(f'[bus]\nkind = "nats"\nurl = "{url}"\n{config[1]}')
    process = kvbridge(args, folder, "run", "--listen", "127.0.0.1:0", "--config", path)
    return process, process.stdout.readline().split(" on ")[1].strip()


def replicas(url):
    return json.loads(ask(f"{url}/v1/replicas"))["replicas"]


def until_exact(url, count):
    deadline = time.monotonic() + PATIENCE_S
    while sum(replica["trust"] == "exact" for replica in replicas(url)) < count:
        if time.monotonic() > deadline:
            sys.exit(f"soak: not exact: {[it for it in replicas(url) if it['trust'] != 'exact'][:3]}")
        time.sleep(LOOK_S)


def said(name, ages):
    cuts = statistics.quantiles(ages, n=100, method="inclusive")
    return f"{name} p50 {cuts[49] * 1e3:.0f} ms, p99 {cuts[98] * 1e3:.0f} ms, most {max(ages) * 1e3:.0f} ms"


def measure(args, bridge, index):
    """Looks at both for so long, and returns what came of it."""
    ages = {bridge: [], index: []}

    def folded():
        return sum(replica["next_seq"] for replica in replicas(index))

    started, before = time.monotonic(), folded()
    while time.monotonic() < started + args.seconds:
        for url, seen in ages.items():
            seen.extend(float(age) for age in AGE.findall(ask(f"{url}/metrics")))
        time.sleep(LOOK_S)
    rate = (folded() - before) / (time.monotonic() - started)
    print(f"soak: {args.replicas} replicas, {rate:.0f} batches/s for {args.seconds} s")
    print(f"soak: age of the views, {said('bridge', ages[bridge])}")
    print(f"soak: age of the views, {said('index', ages[index])}")


def main():
    default = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "kvbridge"
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=str(default))
    parser.add_argument("--replicas", type=int, default=100)
    parser.add_argument("--step-ms", type=int, default=5)
    parser.add_argument("--rps", type=float, default=20.0)
    parser.add_argument("--seconds", type=int, default=60)
    args = parser.parse_args()

    started = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            nats, url = server(folder)
            started.append(nats)
            engine = kvbridge(
                args, folder, "fake-engine", "--engine", "vllm", "--ports-json", "--http", "127.0.0.1:0",
                "--pub", "0", "--replay", "0", "--dp", str(args.replicas), "--rps", str(args.rps),
                "--step-ms", str(args.step_ms),
            )
            started.append(engine)
            ranks = json.loads(engine.stdout.readline())["ranks"]
            sources = [
                f'[[sources]]\nengine = "vllm"\nmodel = "fake"\ninstance = "i:1"\nrank = {rank}\n'
                f'endpoint = "{ports["live"]}"\nreplay = "{ports["replay"]}"\n'
                for rank, ports in enumerate(ranks)
            ]
            bridge, bridge_url = run(args, folder, ("bridge", "".join(sources)), url)
            started.append(bridge)
            until_exact(bridge_url, args.replicas)
            index, index_url = run(args, folder, ("index", ""), url)
            started.append(index)
            until_exact(index_url, args.replicas)
            measure(args, bridge_url, index_url)
            until_exact(index_url, args.replicas)
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(timeout=30)


if __name__ == "__main__":
    main()
