#!/usr/bin/env python3
"""How far an index lags behind its engines: ranks of fake engines through a bridge, a real nats-server
and an index, all on this machine. Prints the batches a second that arrived, the age of the views, in the
bridge and in the index, and what each process took of a core and of memory. An age is the time since the
newest batch that is folded was made: the pause between two batches is part of it. A step without events
sends nothing, so that a few steps make a batch. Every view of the index must be exact at the end.
Linux; standard library only.

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
# A fake engine has at most 64 ranks: a hundred are two engines.
RANKS_MAX = 50
TICKS_S = os.sysconf("SC_CLK_TCK")
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


def cpu_s(process):
    # The name in brackets may hold anything; user and system time are the 12th and 13th word behind it.
    words = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / TICKS_S


def resident_mib(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def engines(args, folder):
    """Starts them; the sources for a bridge, and the processes."""
    sources, processes = [], []
    for first in range(0, args.replicas, RANKS_MAX):
        count = min(RANKS_MAX, args.replicas - first)
        process = kvbridge(
            args, folder, "fake-engine", "--engine", "vllm", "--ports-json", "--http", "127.0.0.1:0",
            "--pub", "0", "--replay", "0", "--dp", str(count), "--rps", str(args.rps),
            "--step-ms", str(args.step_ms),
        )
        processes.append(process)
        ranks = json.loads(process.stdout.readline())["ranks"]
        sources += [
            f'[[sources]]\nengine = "vllm"\nmodel = "fake"\ninstance = "i:{first}"\nrank = {rank}\n'
            f'endpoint = "{ports["live"]}"\nreplay = "{ports["replay"]}"\n'
            for rank, ports in enumerate(ranks)
        ]
    return sources, processes


def measure(args, bridge, index, processes):
    """Looks at both for so long, and returns what came of it."""
    ages = {bridge: [], index: []}

    def folded():
        return sum(replica["next_seq"] for replica in replicas(index))

    started, before = time.monotonic(), folded()
    spent = [cpu_s(process) for _, process in processes]
    while time.monotonic() < started + args.seconds:
        for url, seen in ages.items():
            seen.extend(float(age) for age in AGE.findall(ask(f"{url}/metrics")))
        time.sleep(LOOK_S)
    passed = time.monotonic() - started
    rate = (folded() - before) / passed
    print(f"soak: {args.replicas} replicas, {rate:.0f} batches/s for {args.seconds} s")
    for (name, process), before_s in zip(processes, spent):
        cores = (cpu_s(process) - before_s) / passed
        print(f"soak: {name} {cores:.2f} cores, {resident_mib(process):.0f} MiB")
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
            sources, engine = engines(args, folder)
            started += engine
            bridge, bridge_url = run(args, folder, ("bridge", "".join(sources)), url)
            started.append(bridge)
            until_exact(bridge_url, args.replicas)
            index, index_url = run(args, folder, ("index", ""), url)
            started.append(index)
            until_exact(index_url, args.replicas)
            processes = [("bridge", bridge), ("index", index), ("nats-server", nats)]
            processes += [("engine", process) for process in engine]
            measure(args, bridge_url, index_url, processes)
            until_exact(index_url, args.replicas)
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(timeout=30)


if __name__ == "__main__":
    main()
