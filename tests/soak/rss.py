#!/usr/bin/env python3
"""Whether a kvbridge grows: millions of batches of a fake engine with a bounded cache through the real
process, over real sockets. Its resident memory at the end may be 5 % above that after the first part.
At the end it must hold exactly what the engine has. Linux; standard library only.

usage: rss.py [--binary FILE] [--batches N] [--first N] [--growth RATIO]
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "containers"))
from check import ask, blocks  # noqa: E402

# Below the queue between a socket and its driver: what is measured is folding, not repair.
BURST = 2_000
PATIENCE_S = 120.0


def start(binary, *args):
    return subprocess.Popen([binary, "--log", "warn", *args], stdout=subprocess.PIPE, text=True)


def resident_kib(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    sys.exit("soak: the process has no resident memory")


class Pair:
    def __init__(self, binary):
        self.engine = start(
            binary, "fake-engine", "--engine", "vllm", "--ports-json", "--http", "127.0.0.1:0",
            "--pub", "0", "--replay", "0", "--blocks", "4096",
        )
        ports = json.loads(self.engine.stdout.readline())
        self.engine_url, rank = ports["http"], ports["ranks"][0]
        self.bridge = start(
            binary, "run", "--listen", "127.0.0.1:0", "--vllm", rank["live"], "--replay", rank["replay"],
            "--model", "fake", "--instance", "i:1",
        )
        self.url = self.bridge.stdout.readline().split(" on ")[1].strip()

    def burst(self, count):
        ask(f"{self.engine_url}/control", {"fault": "burst", "count": count})

    def replica(self):
        return json.loads(ask(f"{self.url}/v1/replicas"))["replicas"][0]

    def reach(self, next_seq):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            replica = self.replica()
            if replica["next_seq"] >= next_seq and replica["trust"] == "exact":
                return
            if time.monotonic() > deadline:
                sys.exit(f"soak: {next_seq} was not reached: {replica}")
            time.sleep(0.005)

    def next_seq(self):
        head, _ = blocks(ask(f"{self.engine_url}/truth"))
        return head["next_seq"]

    def until(self, batches):
        """Drives until so many batches were sent, and waits until they are folded."""
        sent = self.next_seq()
        while sent < batches:
            self.burst(min(BURST, batches - sent))
            # A step without events sends nothing: the engine alone knows.
            sent = self.next_seq()
            self.reach(sent)

    def end(self):
        for process in (self.bridge, self.engine):
            process.terminate()
            process.wait(timeout=30)


def main():
    default = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "kvbridge"
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=str(default))
    parser.add_argument("--batches", type=int, default=2_000_000)
    parser.add_argument("--first", type=int, default=200_000)
    parser.add_argument("--growth", type=float, default=1.05)
    args = parser.parse_args()

    pair = Pair(args.binary)
    try:
        # The first batch may leave before the bridge has subscribed; repair brings it.
        pair.until(1_000)
        started, before = time.monotonic(), None
        for batches in range(args.first, args.batches + 1, args.first):
            pair.until(batches)
            rss = resident_kib(pair.bridge)
            before = before or rss
            passed = time.monotonic() - started
            print(f"soak: {batches} batches, {rss} KiB, {passed:.0f} s", flush=True)
        head, truth = blocks(ask(f"{pair.engine_url}/truth"))
        cut, held = blocks(ask(f"{pair.url}/v1/replicas/{pair.replica()['key']}/snapshot"))
        if (cut["resume_seq"], cut["trust"], held) != (head["next_seq"], "exact", truth):
            sys.exit("soak: the view differs from the engine's cache")
        print(f"soak: {len(held)} blocks as the engine has them; {rss} / {before} KiB = {rss / before:.3f}")
        if rss > before * args.growth:
            sys.exit(f"soak: grew by more than {args.growth}")
    finally:
        pair.end()


if __name__ == "__main__":
    main()
