#!/usr/bin/env python3
"""Dynamo's own indexer, unmodified, fed by an engine directly and through a sink: what each holds
against the engine's truth. Not part of CI; docs/sinks.md has the table that it prints.

    python -m venv V && V/bin/pip install ai-dynamo-runtime==1.6.1 pyzmq msgpack
    V/bin/pip install --no-deps ai-dynamo==1.6.1
    cargo build && V/bin/python tests/sinks/dynamo.py [--kvbridge PATH] [ROW ...]

The indexer binds 0.0.0.0: run it where that does no harm. The engine is a PUB and a ROUTER of
libzmq that play a recording (tests/fixtures) with faults; the truth is a fold of all it played,
whether it was delivered or not. A row is a list of steps, and ends when both dumps have stood
still for SETTLE seconds. Printed: ghosts/missing of /dump, directly and through the sink.
"""

import argparse
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from pathlib import Path

import msgpack
import zmq

ROOT = Path(__file__).resolve().parents[2]
END = b"\xff" * 8
MASK = (1 << 64) - 1
# Longer than the bridge's probe of an idle engine and the sink's heartbeat together.
SETTLE = 6
PATIENCE = 60


def load(name):
    """Payloads of the live messages of a recording, one life each."""
    lives = []
    for line in open(ROOT / "tests/fixtures" / f"{name}.jsonl"):
        record = json.loads(line)
        if record["socket"] == "sub" and record.get("dir") == "in":
            topic, seq, payload = (bytes.fromhex(frame) for frame in record["frames_hex"])
            if struct.unpack(">Q", seq)[0] == 0:
                lives.append([])
            lives[-1].append((topic, payload))
    return lives


def number(hash_):
    if isinstance(hash_, bytes):
        hash_ = int.from_bytes(hash_[-8:], "big")
    return hash_ & MASK


def fields(event):
    if isinstance(event, dict):
        return event["type"], event
    names = {
        "BlockStored": ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id",
                        "medium", "lora_name", "extra_keys", "group_idx"],
        "BlockRemoved": ["block_hashes", "medium", "group_idx"],
    }.get(event[0], [])
    return event[0], dict(zip(names, event[1:]))


class Truth:
    """What the engine holds: copies of each block on the device."""

    def __init__(self):
        self.counts, self.parents = {}, {}

    def apply(self, payload):
        for event in msgpack.unpackb(payload, raw=False, strict_map_key=False)[1]:
            tag, event = fields(event)
            if tag == "AllBlocksCleared":
                self.counts.clear()
            elif (event.get("medium") or "GPU") == "GPU":
                if tag == "BlockStored":
                    before = event["parent_block_hash"]
                    before = None if before is None else number(before)
                    for hash_ in map(number, event["block_hashes"]):
                        self.parents[hash_], before = before, hash_
                for hash_ in map(number, event["block_hashes"]):
                    step = 1 if tag == "BlockStored" else -1
                    self.counts[hash_] = self.counts.get(hash_, 0) + step

    def blocks(self):
        return {hash_ for hash_, count in self.counts.items() if count > 0}

    def merged(self, count):
        """The blocks that end a row of `count`, from the first of a sequence on."""
        held, ends = self.blocks(), set()
        for hash_ in held:
            depth, at = 0, hash_
            while at is not None and at in held:
                depth, at = depth + 1, self.parents[at]
            if at is None and depth % count == 0:
                ends.add(hash_)
        return ends


class Engine(threading.Thread):
    """PUB and replay ROUTER of one process; `stop` and a new one is a restart."""

    def __init__(self, ports, journal=10000, holes=(), end=True, bound=True):
        super().__init__(daemon=True)
        self.context = zmq.Context()
        self.live = self.context.socket(zmq.PUB)
        self.live.set(zmq.LINGER, 0)
        self.live.bind(f"tcp://127.0.0.1:{ports[0]}")
        self.router = self.context.socket(zmq.ROUTER)
        self.router.set(zmq.LINGER, 0)
        if bound:
            self.router.bind(f"tcp://127.0.0.1:{ports[1]}")
        self.journal, self.holes, self.end = deque(maxlen=journal), set(holes), end
        self.seq, self.closing, self.lock = 0, False, threading.Lock()
        self.start()

    def publish(self, batch, lost=False):
        topic, payload = batch
        with self.lock:
            self.journal.append((self.seq, topic, payload))
            if not lost:
                self.live.send_multipart([topic, struct.pack(">Q", self.seq), payload])
            self.seq += 1

    def run(self):
        while not self.closing:
            if not self.router.poll(20):
                continue
            peer, _, start = self.router.recv_multipart()
            start = struct.unpack(">Q", start)[0]
            with self.lock:
                for seq, topic, payload in self.journal:
                    if seq >= start and seq not in self.holes:
                        frames = [peer, b"", topic, struct.pack(">Q", seq), payload]
                        self.router.send_multipart(frames)
                if self.end:
                    self.router.send_multipart([peer, b"", b"", END, b""])

    def stop(self):
        self.closing = True
        self.join()
        self.context.destroy(linger=0)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def ask(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read() or b"null")


def until(what, fact):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            found = fact()
            if found:
                return found
        except (OSError, urllib.error.URLError):
            pass
        time.sleep(0.05)
    raise SystemExit(f"{what} did not come true")


class Indexer:
    def __init__(self, folder):
        self.port = free_ports(1)[0]
        self.log = open(folder / f"indexer-{self.port}.log", "w")
        command = [sys.executable, "-m", "dynamo.indexer", "--port", str(self.port), "--threads", "4"]
        self.process = subprocess.Popen(command, cwd=folder, stdout=self.log, stderr=self.log)
        self.url = f"http://127.0.0.1:{self.port}"
        until("the indexer", lambda: ask(f"{self.url}/workers") is not None)

    def register(self, live, replay, block_size):
        body = {"instance_id": 7, "endpoint": live, "model_name": "m", "block_size": block_size}
        if replay:
            body["replay_endpoint"] = replay
        ask(f"{self.url}/register", body)

    def blocks(self):
        found = set()
        for tree in ask(f"{self.url}/dump").values():
            for event in tree["events"]:
                if str(event.get("storage_tier", "device")).lower() not in ("device", "gpu"):
                    continue
                stored = event["event"]["data"].get("stored")
                found |= {number(block["block_hash"]) for block in stored["blocks"]} if stored else set()
        return found

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Bridge:
    def __init__(self, binary, folder, ports, journal, sizes):
        config = folder / "kvbridge.toml"
        replay = f'replay = "tcp://127.0.0.1:{ports[1]}"\n' if journal else ""
        config.write_text(
            f'[[sources]]\nengine = "vllm"\nmodel = "m"\ninstance = "e:1"\n'
            f'endpoint = "tcp://127.0.0.1:{ports[0]}"\n{replay}'
            '[[sinks]]\npreset = "dynamo"\nlisten = "127.0.0.1:0"\nreplay = "127.0.0.1:0"\n'
            f'grace = "500ms"\nheartbeat = "500ms"\n{sizes}'
            '[recovery]\nidle_probe = "1s"\naudit = "1s"\nreplay_deadline = "1s"\nattempts = 2\n')
        self.log = open(folder / "kvbridge.log", "w")
        command = [binary, "run", "--listen", "127.0.0.1:0", "--config", str(config)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.url = self.process.stdout.readline().split(" on ")[1].strip()
        line = until("the sink", lambda: [line for line in ask(f"{self.url}/v1/sinks")["sinks"]
                                          if "listen" in line])[0]
        self.live, self.replay = line["listen"], line["replay"]
        self.trusts = []

    def trust(self):
        return ask(f"{self.url}/v1/replicas")["replicas"][0]["trust"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class World:
    def __init__(self, binary, folder, *, journal=10000, replay=True, late=0, block_size=32, told=None,
                 **faults):
        self.ports, self.truth, self.faults = free_ports(2), Truth(), faults
        self.journal = journal
        self.engine = Engine(self.ports, journal=journal, **faults)
        live, asked = (f"tcp://127.0.0.1:{port}" for port in self.ports)
        self.block_sizes = (block_size, told or block_size)
        sizes = f"block_size = {told}\nengine_block_size = {block_size}\n" if told else ""
        self.bridge = Bridge(binary, folder, self.ports, replay, sizes)
        self.indexers = [Indexer(folder), Indexer(folder)]
        self.sockets = [(live, asked if replay else None), (self.bridge.live, self.bridge.replay)]
        self.joined = False
        if not late:
            self.join()

    def join(self):
        if self.joined:
            return
        self.joined = True
        for indexer, at, size in zip(self.indexers, self.sockets, self.block_sizes):
            indexer.register(*at, size)
        # Subscriptions need a moment; libzmq does not tell a PUB of them.
        time.sleep(1)

    def play(self, batches, lost=()):
        for at, batch in enumerate(batches):
            self.truth.apply(batch[1])
            self.engine.publish(batch, lost=at in lost)
            time.sleep(0.005)

    def restart(self, batches, skip=0):
        """The engine ends; another begins with an empty cache at the same ports."""
        self.engine.stop()
        self.truth = Truth()
        self.engine = Engine(self.ports, journal=self.journal, **self.faults)
        if skip:
            self.play(batches[:skip])
        time.sleep(2.5)
        self.play(batches[skip:])

    def settle(self):
        seen, since = None, time.monotonic()
        while time.monotonic() - since < SETTLE:
            now = [indexer.blocks() for indexer in self.indexers]
            if now != seen:
                seen, since = now, time.monotonic()
            time.sleep(0.3)
        own, told = self.block_sizes
        truth = self.truth.blocks()
        truths = [truth, truth]
        if told > own:
            truths[1] = self.truth.merged(told // own)
        elif told < own:
            # The last part of a block has its name; the names of the others are the sink's own, and
            # as many of them as there must be are taken for right.
            names = sorted(seen[1] - truth)
            truths[1] = truth | set(names[:len(truth) * (own // told - 1)])
            lacking = len(truth) * (own // told) - len(truths[1])
            truths[1] |= {("lacking", at) for at in range(lacking)}
        pairs = zip(seen, truths)
        return [(len(blocks - truth), len(truth - blocks)) for blocks, truth in pairs], len(truths[1])

    def stop(self):
        self.engine.stop()
        self.bridge.stop()
        for indexer in self.indexers:
            indexer.stop()


V32 = load("vllm-0.32.0-basic")[0]
V16 = load("vllm-0.16.0-basic")[0]


def stores(count, first_chain=0):
    """A life of stores alone, so that nothing later replaces what a loss damaged: chains of 4."""
    batches = []
    for at in range(count):
        chain, depth = divmod(at, 4)
        chain += first_chain
        key = lambda d: 0x9E3779B97F4A7C15 * (chain * 4 + d + 1) & MASK
        event = {"type": "BlockStored", "block_hashes": [key(depth)],
                 "parent_block_hash": key(depth - 1) if depth else None,
                 "token_ids": [chain * 1000 + depth * 32 + t for t in range(32)],
                 "block_size": 32, "lora_id": None, "medium": "GPU", "lora_name": None}
        batches.append((b"", msgpack.packb([1.0, [event], 0])))
    return batches


def salted():
    """Two chains of the same tokens, one of them with a salt; then the plain one is removed."""
    def store(base, salt):
        event = {"type": "BlockStored", "block_hashes": [base + 1, base + 2],
                 "parent_block_hash": None, "token_ids": list(range(64)), "block_size": 32,
                 "lora_id": None, "medium": "GPU", "lora_name": None}
        if salt:
            event["extra_keys"] = [[salt], None]
        return event
    plain, pepper = 1 << 40, 1 << 41
    remove = {"type": "BlockRemoved", "block_hashes": [plain + 2, plain + 1], "medium": "GPU"}
    events = [[store(plain, None)], [store(pepper, "pepper")], [remove]]
    return [(b"", msgpack.packb([1.0, event, 0])) for event in events]


def as_bytes(batches):
    """The same with hashes as 32 bytes."""
    wide = lambda hash_: b"\x01" * 24 + number(hash_).to_bytes(8, "big")
    out = []
    for topic, payload in batches:
        ts, events, rank = msgpack.unpackb(payload, raw=False, strict_map_key=False)
        for event in events:
            if "block_hashes" in event:
                event["block_hashes"] = [wide(hash_) for hash_ in event["block_hashes"]]
            if event.get("parent_block_hash") is not None:
                event["parent_block_hash"] = wide(event["parent_block_hash"])
        out.append((topic, msgpack.packb([ts, events, rank])))
    return out


def cleared_at(batches):
    for at, (_, payload) in enumerate(batches):
        for event in msgpack.unpackb(payload, raw=False, strict_map_key=False)[1]:
            if fields(event)[0] == "AllBlocksCleared":
                return at
    raise SystemExit("no clear in the recording")


def lose(*seqs):
    return lambda world, batches: world.play(batches, set(seqs))


def tail(world, batches):
    world.play(batches, set(range(59, len(batches))))


def late(after):
    def run(world, batches):
        world.play(batches[:after])
        world.join()
        world.play(batches[after:])
    return run


def restart(second, skip=0):
    def run(world, batches):
        world.play(batches)
        time.sleep(2)
        world.restart(second, skip)
    return run


DROPS = (*range(5, 10), 20, *range(50, 53))
NC = stores(38)
ROWS = {
    "clean": (V32, lose(), {}),
    "drops, replay": (V32, lose(*DROPS), {}),
    "drops, no replay": (V32, lose(*DROPS), {"replay": False}),
    "clear lost, no replay": (V32, lose(cleared_at(V32)), {"replay": False}),
    "tail lost": (V32, tail, {}),
    "late, engine idle afterwards": (V32, late(len(V32)), {"late": 1}),
    "late, journal of 5": (V32, late(50), {"late": 1, "journal": 5}),
    "late, journal of 5, stores only": (NC, late(30), {"late": 1, "journal": 5}),
    "gap 40-56, journal of 5": (V32, lose(*range(40, 57)), {"journal": 5}),
    "drop 46-50, hole at 48": (V32, lose(*range(46, 51)), {"holes": [48]}),
    "drop 10-14, hole at 12, stores only": (NC, lose(*range(10, 15)), {"holes": [12]}),
    "no end marker": (V32, lose(*DROPS), {"end": False}),
    "dead replay port": (V32, lose(*DROPS), {"bound": False}),
    "restart, numbers below": (V32, restart(NC), {}),
    "restart, joined at 20": (V32, restart(NC, 20), {}),
    "restart, numbers above": (NC, restart(stores(60, 1000)), {}),
    "hashes of 32 bytes": (as_bytes(V32), lose(), {}),
    "salt": (salted(), lose(), {}),
    "blocks of 64": (V32, lose(*DROPS), {"told": 64}),
    "blocks of 16": (V32, lose(*DROPS), {"told": 16}),
    "v16, blocks of 48": (V16, lose(*DROPS), {"block_size": 16, "told": 48}),
    "v16, drops, no replay": (V16, lose(*DROPS), {"replay": False, "block_size": 16}),
    "v16, tail lost": (V16, tail, {"block_size": 16}),
}


def main():
    parser = argparse.ArgumentParser()
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    parser.add_argument("--kvbridge", default=str(Path(target) / "debug/kvbridge"))
    parser.add_argument("rows", nargs="*")
    args = parser.parse_args()
    print("| row | blocks | directly | through a sink | bridge |\n|---|---|---|---|---|", flush=True)
    failed = False
    for name, (batches, run, settings) in ROWS.items():
        if args.rows and name not in args.rows:
            continue
        with tempfile.TemporaryDirectory() as folder:
            world = World(args.kvbridge, Path(folder), **settings)
            try:
                run(world, batches)
                (direct, through), count = world.settle()
                trust = world.bridge.trust()
            finally:
                world.stop()
        print(f"| {name} | {count} | {direct[0]}/{direct[1]} | {through[0]}/{through[1]} | {trust} |",
              flush=True)
        # Without trust nothing may be told; with it exactly what is there, or less and no ghost.
        failed |= through[0] > 0 or (trust == "exact" and through[1] > 0)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
