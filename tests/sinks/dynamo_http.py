#!/usr/bin/env python3
"""The HTTP of Dynamo's own indexer, unmodified, beside ours: both are registered at the same engine
by the same request, and asked the same. Not part of CI; what CI compares with is written here.

    as tests/sinks/dynamo.py, then
    V/bin/python tests/sinks/dynamo_http.py [--kvbridge PATH] [--golden FILE] [ROW ...]

Each row plays a recording or a life made here. Asked are, of every chain that was ever stored, the
whole of it, each beginning of it and one that parts from it, by tokens and by hashes; what both
dump; whom both list; and what both refuse. A third indexer then starts with ours as its peer and
nobody else, and is asked as well. Printed: how many answers, and how many differ.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import msgpack

from dynamo import (NC, ROOT, V16, V32, Engine, Indexer, ask, fields, free_ports, load, number,
                    stores, until)

sys.path.insert(0, str(ROOT / "tests/fixtures"))
from xxh3 import xxh3_64  # noqa: E402

SEED = 1337
ID = 7
# The file of golden answers has one question of so many; a script that is run by hand asks all.
GOLDEN_ONE_OF = 7


def send(url, body=None):
    """Status and body, whatever the status."""
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    try:
        return status, json.loads(text or b"null")
    except ValueError:
        return status, text.decode()


class Bridge:
    """kvbridge with the HTTP of the indexer, and no source of its own."""

    def __init__(self, binary, folder):
        config = folder / "kvbridge.toml"
        config.write_text('[http]\nlisten = "127.0.0.1:0"\n[state]\ndir = "state"\n'
                          '[compat.dynamo]\nlisten = "127.0.0.1:0"\n'
                          '[recovery]\nidle_probe = "1s"\naudit = "1s"\n')
        self.log = open(folder / "kvbridge.log", "w")
        command = [binary, "run", "--config", str(config)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        cwd=folder)
        line = self.process.stdout.readline()
        self.api = line.split(" on ")[1].strip()
        while "Dynamo" not in line:
            line = self.process.stdout.readline()
        self.url = line.split(" on ")[1].strip()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Peered(Indexer):
    """An indexer that asks a peer what there is."""

    def __init__(self, folder, peer):
        self.port = free_ports(1)[0]
        self.log = open(folder / f"indexer-{self.port}.log", "w")
        command = [sys.executable, "-m", "dynamo.indexer", "--port", str(self.port), "--peers", peer]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        self.url = f"http://127.0.0.1:{self.port}"
        until("the indexer", lambda: ask(f"{self.url}/workers") is not None)


class Chains:
    """What was ever stored: the tokens up to each block, and the adapter."""

    def __init__(self, batches, block_size):
        self.block_size, self.blocks = block_size, {}
        for _, payload in batches:
            for event in msgpack.unpackb(payload, raw=False, strict_map_key=False)[1]:
                tag, event = fields(event)
                if tag == "BlockStored":
                    self.store(event)

    def store(self, event):
        parent = event.get("parent_block_hash")
        tokens, lora = self.blocks.get(number(parent), ([], None)) if parent is not None else ([], None)
        lora = lora or event.get("lora_name")
        for at, hash_ in enumerate(map(number, event["block_hashes"])):
            own = event["token_ids"][at * self.block_size:(at + 1) * self.block_size]
            tokens = tokens + list(own)
            self.blocks[hash_] = (tokens, lora)

    def questions(self):
        """Each once: (tokens, adapter)."""
        seen = {}
        for tokens, lora in self.blocks.values():
            for asked in (tokens, tokens + tokens[:5], tokens[:-1] + [tokens[-1] + 1]):
                seen[json.dumps([asked, lora])] = (asked, lora)
        seen["[]"] = ([], None)
        return [seen[key] for key in sorted(seen)]

    def hashes(self, tokens):
        size = self.block_size
        starts = range(0, len(tokens) - size + 1, size)
        blocks = (b"".join(t.to_bytes(4, "little") for t in tokens[at:at + size]) for at in starts)
        numbers = (xxh3_64(block, SEED) for block in blocks)
        return [value - (1 << 64) if value >> 63 else value for value in numbers]


def asked(chains):
    """Path and body of everything that is asked."""
    for tokens, lora in chains.questions():
        body = {"model_name": "m", "token_ids": tokens}
        if lora:
            body["lora_name"] = lora
        yield "/query", body
        if not lora:
            yield "/query_by_hash", {"model_name": "m", "block_hashes": chains.hashes(tokens)}


def refused(engine, block_size):
    """What both refuse: same status, and an error that is named."""
    register = {"instance_id": ID, "endpoint": engine, "model_name": "m", "block_size": block_size}
    return [
        ("/query", {"model_name": "n", "token_ids": [1]}),
        ("/query", {"model_name": "m", "routing_group": "g", "token_ids": [1]}),
        ("/query", {"model_name": "m"}),
        ("/query", {"model_name": "m", "token_ids": ["a"]}),
        ("/query", b"{"),
        ("/query_by_hash", {"model_name": "m", "block_hashes": [1], "cache_salt": "s"}),
        ("/query_by_hash", {"model_name": "n", "block_hashes": [1]}),
        ("/register", register),
        ("/register", {**register, "model_name": "n"}),
        ("/register", {**register, "instance_id": 8, "block_size": 2 * block_size}),
        ("/register", {**register, "instance_id": 8, "endpoint": "nonsense"}),
        ("/unregister", {"instance_id": 9, "model_name": "m"}),
        ("/unregister", {"instance_id": ID, "model_name": "n"}),
    ]


def blocks_of(dump):
    """A dump as a set: the order and numbers of events say nothing."""
    found = {}
    for name, tree in dump.items():
        blocks = []
        for event in tree["events"]:
            stored = event["event"]["data"]["stored"]
            parent = stored["parent_hash"] or 0
            for block in stored["blocks"]:
                blocks.append((event["worker_id"], event["storage_tier"], event["event"]["dp_rank"],
                               parent, block["block_hash"], block["tokens_hash"]))
                parent = block["block_hash"]
        found[name] = (tree["block_size"], sorted(blocks))
    return found


def shape(value):
    """The names of all fields, without their values."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value[:1]]
    return type(value).__name__


class Row:
    def __init__(self, name, binary, folder, batches, block_size):
        self.name, self.differences, self.count = name, [], 0
        self.chains = Chains(batches, block_size)
        ports = free_ports(2)
        live, replay = (f"tcp://127.0.0.1:{port}" for port in ports)
        self.engine, self.live = Engine(ports), live
        self.indexer, self.bridge = Indexer(folder), Bridge(binary, folder)
        self.folder = folder
        register = {"instance_id": ID, "endpoint": live, "model_name": "m",
                    "block_size": block_size, "replay_endpoint": replay}
        self.compare("/register", send(self.indexer.url + "/register", register),
                     send(self.bridge.url + "/register", register))
        time.sleep(1)
        for batch in batches:
            self.engine.publish(batch)
            time.sleep(0.005)
        count = len(batches)
        until("the bridge", lambda: ask(f"{self.bridge.api}/v1/replicas")["replicas"][0]["next_seq"]
              == count)
        time.sleep(1)

    def compare(self, what, theirs, ours):
        self.count += 1
        if theirs != ours:
            self.differences.append((what, theirs, ours))

    def both(self, path, body=None):
        return send(self.indexer.url + path, body), send(self.bridge.url + path, body)

    def run(self):
        golden = {"queries": [], "refusals": []}
        for path, body in asked(self.chains):
            theirs, ours = self.both(path, body)
            if self.count % GOLDEN_ONE_OF == 0:
                golden["queries"].append([path, body, theirs[1]])
            self.compare((path, body), theirs, ours)
        theirs, ours = self.both("/dump")
        golden["dump"] = theirs[1]
        self.compare("/dump", blocks_of(theirs[1]), blocks_of(ours[1]))
        event = lambda dump: shape(dump["m:default"]["events"][0]) if dump["m:default"]["events"] else {}
        self.compare("/dump, fields", event(theirs[1]), event(ours[1]))
        (_, theirs), (_, ours) = self.both("/workers")
        golden["workers"] = theirs
        for worker in ours:
            worker.pop("instance")
        self.compare("/workers", theirs, ours)
        for path in ("/workers?model_name=n", "/workers?routing_group=g", "/peers", "/health"):
            self.compare(path, *self.both(path))
        for path, body in refused(self.live, self.chains.block_size):
            theirs, ours = self.both(path, body)
            text = body.decode() if isinstance(body, bytes) else body
            golden["refusals"].append([path, text, theirs[0]])
            named = isinstance(ours[1], dict) and "error" in ours[1]
            self.compare((path, body), (theirs[0], True), (ours[0], named))
        self.from_peer()
        unregister = {"instance_id": ID, "model_name": "m"}
        self.compare("/unregister", *self.both("/unregister", unregister))
        self.compare("/query afterwards", *(answer[0] for answer in self.both(
            "/query", {"model_name": "m", "token_ids": [1]})))
        return golden

    def from_peer(self):
        """An indexer that knows nothing but what ours dumps."""
        third = Peered(self.folder, self.bridge.url)
        time.sleep(3)
        for path, body in asked(self.chains):
            self.compare(("from a peer", path, body), send(self.bridge.url + path, body),
                         send(third.url + path, body))
        third.stop()

    def stop(self):
        self.engine.stop()
        self.bridge.stop()
        self.indexer.stop()


def tiers():
    """A prefix on the device that goes on in host memory, and one of host memory alone."""
    def store(hash_, parent, first, medium):
        return {"type": "BlockStored", "block_hashes": [hash_], "parent_block_hash": parent,
                "token_ids": list(range(first, first + 32)), "block_size": 32, "lora_id": None,
                "medium": medium, "lora_name": None}
    lives = [store(1, None, 0, "GPU"), store(2, 1, 32, "GPU"), store(3, 2, 64, "CPU"),
             store(9, None, 500, "CPU")]
    return [(b"", msgpack.packb([1.0, [event], 0])) for event in lives]


ROWS = {
    "vllm-0.32.0-basic": (V32, 32),
    "vllm-0.16.0-basic": (V16, 16),
    "vllm-0.32.0-lora": (load("vllm-0.32.0-lora")[0], 32),
    "stores": (NC, 32),
    "many": (stores(400), 32),
    "tiers": (tiers(), 32),
}


# What docs/dynamo.md says that differs: hashes with an adapter in them are not dumped.
EXPECTED = {"vllm-0.32.0-lora": ("/dump", "from a peer")}


def is_expected(name, what):
    return (what if isinstance(what, str) else what[0]) in EXPECTED.get(name, ())


def main():
    parser = argparse.ArgumentParser()
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    parser.add_argument("--kvbridge", default=str(Path(target) / "debug/kvbridge"))
    parser.add_argument("--golden", help="write what the indexer answered in the first row")
    parser.add_argument("rows", nargs="*", default=list(ROWS))
    arguments = parser.parse_args()
    failed = False
    for name in arguments.rows:
        batches, block_size = ROWS[name]
        with tempfile.TemporaryDirectory() as folder:
            row = Row(name, arguments.kvbridge, Path(folder), batches, block_size)
            try:
                golden = row.run()
            finally:
                row.stop()
        wrong = [it for it in row.differences if not is_expected(name, it[0])]
        documented = len(row.differences) - len(wrong)
        print(f"{name}: {row.count} answers, {documented} differ as documented, {len(wrong)} "
              "otherwise", flush=True)
        for what, theirs, ours in wrong[:5]:
            print(f"  {str(what)[:200]}\n    theirs {str(theirs)[:600]}\n    ours   {str(ours)[:600]}")
        failed |= bool(wrong)
        if arguments.golden:
            golden["recording"], golden["batches"] = name, len(batches)
            Path(arguments.golden).write_text(json.dumps(golden, separators=(",", ":")) + "\n")
            arguments.golden = None
    sys.exit(failed)


if __name__ == "__main__":
    main()
