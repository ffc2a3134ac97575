#!/usr/bin/env python3
"""A fleet that starts at once: so many ranks of fake engines that have served for a while, and then a bridge
that must learn all of them from their journals. Prints how long that took, how often a request found no
place (`recovery.parallel`), and what the bridge took of memory. Linux; standard library only.

usage: fleet.py [--binary FILE] [--replicas N] [--parallel N] [--bursts N]
"""

import argparse
import json
import os
import pathlib
import resource
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bus import ROOT, ask, cpu_s, kvbridge, replicas, resident_mib  # noqa: E402

PATIENCE_S = 300.0
# Many small engines: one of them is asked by one of its ranks at a time.
RANKS = 8


def metric(url, name):
    found = [line for line in ask(f"{url}/metrics").splitlines() if line.startswith(name)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in found if 'fact="busy"' in line)


def engines(args, folder, started):
    sources = []
    for first in range(0, args.replicas, RANKS):
        count = min(RANKS, args.replicas - first)
        process = kvbridge(
            args, folder, "fake-engine", "--engine", "vllm", "--ports-json", "--http", "127.0.0.1:0",
            "--pub", "0", "--replay", "0", "--dp", str(count), "--step-ms", "5",
        )
        started.append(process)
        ports = json.loads(process.stdout.readline())
        burst = json.dumps({"fault": "burst", "count": args.bursts}).encode()
        for rank in range(count):
            post(f"{ports['http']}/control?rank={rank}", burst)
        sources += [
            f'[[sources]]\nengine = "vllm"\nmodel = "fake"\ninstance = "i:{first}"\nrank = {rank}\n'
            f'endpoint = "{at["live"]}"\nreplay = "{at["replay"]}"\n'
            for rank, at in enumerate(ports["ranks"])
        ]
    return sources


def post(url, body):
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=30) as answer:
        answer.read()


def main():
    default = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "kvbridge"
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=str(default))
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--bursts", type=int, default=200)
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    started = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            sources = engines(args, folder, started)
            config = pathlib.Path(folder) / "bridge.toml"
            config.write_text(f"[recovery]\nparallel = {args.parallel}\n{''.join(sources)}")
            begun = time.monotonic()
            bridge = kvbridge(args, folder, "run", "--listen", "127.0.0.1:0", "--config", config)
            started.append(bridge)
            url = bridge.stdout.readline().split(" on ")[1].strip()
            # It names every source, which is more than a pipe holds: unread, it would wait for us.
            threading.Thread(target=bridge.stdout.read, daemon=True).start()
            while True:
                exact = sum(it["trust"] == "exact" for it in replicas(url))
                took = time.monotonic() - begun
                if exact == args.replicas:
                    break
                if took > PATIENCE_S:
                    sys.exit(f"fleet: {exact} of {args.replicas} are exact after {took:.0f} s")
                time.sleep(0.2)
            busy = metric(url, "kvbridge_facts_total")
            print(
                f"fleet: {args.replicas} replicas, parallel {args.parallel}: all exact after {took:.1f} s; "
                f"{busy:.0f} requests found no place; {cpu_s(bridge):.1f} s of processor, "
                f"{resident_mib(bridge):.0f} MiB"
            )
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(timeout=30)


if __name__ == "__main__":
    main()
