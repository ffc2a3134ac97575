#!/usr/bin/env python3
"""Dynamo's own selection service, unmodified, fed by engines directly and through sinks: what its
choices were worth. Not part of CI; docs/sinks.md has the table that it prints.

    as tests/sinks/dynamo.py, then
    V/bin/python tests/sinks/dynamo_select.py [--kvbridge PATH] [--runs N] [--arms ARM,ARM] [ROW ...]

Conversations that share a system prompt and grow turn by turn go to three modelled vLLM engines
(`kvbridge fake-engine`), one request after the other, each where `POST /select_and_reserve` says.
A reservation stays for the next requests, so that the service weighs load against what is cached,
as it does in earnest. No engine has room for all conversations: blocks are evicted all the time.
One engine starts anew on the way, and another one's next batches are lost.

Printed of each part, as the middle of all runs (least-most): the hit rate, which is cached tokens by
prompt tokens as engines report them; choices of an engine that holds less of the prompt than another
one (`less`), which load may be the reason of; of these the ones where the service did not know, of
the one or the other (`blind`), and how many tokens they cost; and all choices where it believed of
some engine more than it holds (`ghosts`) or less (`gaps`). What engines hold is asked of them (`GET
/truth`) and compared with hashes that are computed here; that the engine then reports as many cached
tokens is asserted for every request.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from dynamo import ROOT, ask, free_ports, until

BLOCK = 16
WORKERS = 3
SYSTEM, USER, OUTPUT = 512, 48, 16
TURNS, ACTIVE = 8, 15
POOL = 192
# Requests: the first fill the engines and count nowhere, then three parts.
FILL, PART = 45, 160
# Reservations that stay.
IN_FLIGHT = 3
RESTART_AT, LOSS_AT, LOST = FILL + PART, FILL + PART + 40, 30
# Between two requests: events need a moment.
PAUSE = 0.02
ARMS = ("directly", "through sinks")
ROWS = {
    "replay": {"replay": True},
    "no replay": {"replay": False},
    "journal of 10": {"replay": True, "journal": 10},
}


def head(major, value):
    if value < 24:
        return bytes([major | value])
    for mark, size in ((24, 1), (25, 2), (26, 4)):
        if value < 1 << (8 * size):
            return bytes([major | mark]) + value.to_bytes(size, "big")
    raise ValueError(value)


def hashes(tokens):
    """Of the full blocks, as events have them: vLLM's `sha256_cbor`, the last 8 bytes."""
    seed = b"vllm-none-hash"
    parent, found = hashlib.sha256(head(0x60, len(seed)) + seed).digest(), []
    for at in range(0, len(tokens) - BLOCK + 1, BLOCK):
        block = b"".join(head(0, token) for token in tokens[at:at + BLOCK])
        parent = hashlib.sha256(b"\x83\x58\x20" + parent + head(0x80, BLOCK) + block + b"\xf6").digest()
        found.append(parent[-8:].hex())
    return found


class Engine:
    def __init__(self, binary, folder, name, journal=10000):
        live, replay, http = free_ports(3)
        self.name, self.live, self.replay = name, f"tcp://127.0.0.1:{live}", f"tcp://127.0.0.1:{replay}"
        self.url = f"http://127.0.0.1:{http}"
        self.log = open(folder / f"engine-{name}.log", "w")
        self.process = subprocess.Popen(
            [binary, "fake-engine", "--engine", "vllm", "--model", "m", "--block-size", str(BLOCK),
             "--blocks", str(POOL), "--pub", str(live), "--replay", str(replay), "--step-ms", "1",
             "--http", f"127.0.0.1:{http}", "--buffer-steps", str(journal)],
            stdout=self.log, stderr=self.log)
        until(name, lambda: self.cached([]) == 0)

    def cached(self, chain):
        """Tokens of the longest beginning that it holds."""
        with urllib.request.urlopen(f"{self.url}/truth", timeout=10) as answer:
            held = {json.loads(line).get("hash") for line in answer}
        depth = 0
        while depth < len(chain) and chain[depth] in held:
            depth += 1
        return depth * BLOCK

    def complete(self, tokens):
        body = {"model": "m", "prompt": tokens, "max_tokens": OUTPUT}
        answer = ask(f"{self.url}/v1/completions", body)
        details = answer["usage"]["prompt_tokens_details"]
        return answer["choices"][0]["token_ids"], details["cached_tokens"]

    def fault(self, **fault):
        ask(f"{self.url}/control", fault)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Bridge:
    """One sink for each engine: the service takes all that comes over a socket for one worker."""

    def __init__(self, binary, folder, engines, replay):
        text = "[recovery]\nidle_probe = \"1s\"\naudit = \"1s\"\nreplay_deadline = \"1s\"\nattempts = 2\n"
        for engine in engines:
            asked = f'replay = "{engine.replay}"\n' if replay else ""
            text += (f'[[sources]]\nengine = "vllm"\nmodel = "m"\ninstance = "{engine.name}"\n'
                     f'endpoint = "{engine.live}"\n{asked}'
                     f'[[sinks]]\nname = "{engine.name}"\ninstance = "{engine.name}"\n'
                     'preset = "dynamo"\nlisten = "127.0.0.1:0"\nreplay = "127.0.0.1:0"\n'
                     'grace = "500ms"\nheartbeat = "500ms"\n')
        (folder / "kvbridge.toml").write_text(text)
        self.log = open(folder / "kvbridge.log", "w")
        command = [binary, "run", "--listen", "127.0.0.1:0", "--config", str(folder / "kvbridge.toml")]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.url = self.process.stdout.readline().split(" on ")[1].strip()
        bound = lambda: [line for line in ask(f"{self.url}/v1/sinks")["sinks"] if "listen" in line]
        until("the sinks", lambda: len(bound()) == len(engines))
        self.sockets = {line["sink"]: (line["listen"], line["replay"]) for line in bound()}

    def trust(self):
        return [line["trust"] for line in ask(f"{self.url}/v1/replicas")["replicas"]]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Service:
    def __init__(self, folder, sockets):
        self.url = f"http://127.0.0.1:{(port := free_ports(1)[0])}"
        self.log = open(folder / "service.log", "w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dynamo.select_service", "--port", str(port), "--threads", "4"],
            cwd=folder, stdout=self.log, stderr=self.log)
        until("the service", lambda: ask(f"{self.url}/health") is not False)
        for number, (live, replay) in enumerate(sockets):
            body = {"worker_id": number, "model_name": "m", "endpoint": "http://127.0.0.1:9",
                    "block_size": BLOCK, "data_parallel_start_rank": 0, "data_parallel_size": 1,
                    "kv_events_endpoints": {"0": live}}
            if replay:
                body["replay_endpoint"] = replay
            ask(f"{self.url}/workers", body)

    def select(self, tokens, number):
        """Whom it chose, and what it believed of each."""
        prompt = {"model_name": "m", "token_ids": tokens}
        scores = ask(f"{self.url}/overlap_scores", prompt)["workers"]
        believed = {score["worker_id"]: score["device_blocks"] * BLOCK for score in scores}
        prompt["selection_id"] = str(number)
        return ask(f"{self.url}/select_and_reserve", prompt)["worker_id"], believed

    def computed(self, number):
        ask(f"{self.url}/reservations/{number}/prefill_complete", {})

    def finished(self, number):
        request = urllib.request.Request(f"{self.url}/reservations/{number}", method="DELETE")
        urllib.request.urlopen(request, timeout=10).close()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class World:
    def __init__(self, binary, folder, arm, replay=True, journal=10000):
        self.running, self.bridge = [], None
        self.engines = [self.keep(Engine(binary, folder, f"e{at}", journal)) for at in range(WORKERS)]
        sockets = [(engine.live, engine.replay if replay else None) for engine in self.engines]
        if arm == "through sinks":
            self.bridge = self.keep(Bridge(binary, folder, self.engines, replay))
            sockets = [self.bridge.sockets[engine.name] for engine in self.engines]
        self.service = self.keep(Service(folder, sockets))
        # Subscriptions need a moment; nobody tells of them.
        time.sleep(1.5)

    def keep(self, part):
        self.running.append(part)
        return part

    def request(self, tokens, number):
        """What is generated, and how the choice was."""
        # The last token is always computed.
        chain = hashes(tokens[:-1])
        chosen, believed = self.service.select(tokens, number)
        held = {at: engine.cached(chain) for at, engine in enumerate(self.engines)}
        output, cached = self.engines[chosen].complete(tokens)
        assert cached == held[chosen], f"computed {held[chosen]}, the engine says {cached}"
        self.service.computed(number)
        if number >= IN_FLIGHT:
            self.service.finished(number - IN_FLIGHT)
        # It counts the last block too, which is computed all the same.
        most = len(chain) * BLOCK
        believed = {at: min(count, most) for at, count in believed.items()}
        return output, Choice(chosen, held, believed)

    def stop(self):
        for part in reversed(self.running):
            part.stop()


class Choice:
    def __init__(self, chosen, held, believed):
        best = max(held.values())
        self.cached, self.lacking = held[chosen], best - held[chosen]
        unknown = any(believed[at] < count == best for at, count in held.items())
        self.blind = self.lacking > 0 and (unknown or believed[chosen] > held[chosen])
        self.ghosts = any(believed[at] > count for at, count in held.items())
        self.gaps = any(believed[at] < count for at, count in held.items())


class Part:
    """Sums over some requests."""

    def __init__(self):
        self.prompt = self.cached = self.less = self.blind = self.lost = self.ghosts = self.gaps = 0

    def add(self, prompt, choice):
        self.prompt += prompt
        self.cached += choice.cached
        self.less += choice.lacking > 0
        self.blind += choice.blind
        self.lost += choice.lacking if choice.blind else 0
        self.ghosts += choice.ghosts
        self.gaps += choice.gaps

    def values(self):
        rate = round(100 * self.cached / self.prompt, 1)
        return rate, self.less, self.blind, self.lost, self.ghosts, self.gaps


def run(world, seed):
    """The same requests for every arm, but for what engines generate, which is the same too."""
    chance, drawn = random.Random(seed), lambda rng, count: [rng.randrange(32000) for _ in range(count)]
    system = drawn(chance, SYSTEM)
    # As at the start of an engine in a fleet; else one alone has the prompt, and all go there.
    for engine in world.engines:
        engine.complete(system)
    time.sleep(1)
    # Conversations are begun one by one, so that there are young and old ones at any time.
    conversations, begun, parts = [], 0, [Part() for _ in range(4)]
    for at in range(FILL + 3 * PART):
        if at == RESTART_AT:
            world.engines[0].fault(fault="restart")
            world.engines[0].complete(system)
        if at == LOSS_AT:
            world.engines[1].fault(fault="drop", count=LOST)
        if len(conversations) < ACTIVE and (at % 3 == 0 or not conversations):
            words = random.Random(seed * 100003 + begun)
            conversations.insert(0, [words, list(system), 0])
            begun += 1
        conversation = conversations.pop(0)
        words, tokens, turns = conversation
        tokens += drawn(words, USER)
        output, choice = world.request(tokens, at)
        parts[0 if at < FILL else 1 + (at - FILL) // PART].add(len(tokens), choice)
        tokens += output
        conversation[2] += 1
        if turns + 1 < TURNS:
            conversations.append(conversation)
        time.sleep(PAUSE)
    return [part.values() for part in parts[1:]]


def middle(values, form="{:.0f}"):
    low, mid, high = min(values), statistics.median(values), max(values)
    return f"{form.format(mid)} ({form.format(low)}-{form.format(high)})"


def main():
    parser = argparse.ArgumentParser()
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    parser.add_argument("--kvbridge", default=str(Path(target) / "debug/kvbridge"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("rows", nargs="*", default=list(ROWS))
    args = parser.parse_args()
    print(f"| row | fed | part of {PART} | hit rate, % | less | blind | tokens lost | ghosts | gaps |\n"
          "|---|---|---|---|---|---|---|---|---|", flush=True)
    found = {}
    # Runs are the outer loop: a machine that is slower for a while is so for all arms.
    for seed in range(args.runs):
        for row in args.rows:
            for arm in args.arms.split(","):
                with tempfile.TemporaryDirectory() as folder:
                    world = World(args.kvbridge, Path(folder), arm, **ROWS[row])
                    try:
                        values = run(world, seed)
                        trust = world.bridge.trust() if world.bridge else ""
                    finally:
                        world.stop()
                found.setdefault((row, arm), []).append(values)
                print(f"# {seed} {row}, {arm}: {values} {trust}", file=sys.stderr, flush=True)
    for (row, arm), runs in found.items():
        for at, part in enumerate(("before", "during", "after")):
            rate, *others = zip(*(values[at] for values in runs))
            cells = [middle(rate, "{:.1f}"), *map(middle, others)]
            print(f"| {row} | {arm} | {part} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
