#!/usr/bin/env python3
"""Drives prompts with shared prefixes through a real engine that a kvbridge reads, and asks that kvbridge
before each of them what the engine holds. Compared with what the engine's answer says it had cached, in
stages: until its cache evicts, under many requests at a time, after its cache was emptied, with a kvbridge
that starts late, with salts, after the engine was restarted. Prints a table; fails if the view, believed to
be exact, ever held what the engine did not, or did not hold what it did, and nothing explains it. The raw
frames and a report stay in the folder. Linux; standard library only. Started by run.sh.

usage: drive.py ENGINE --folder FOLDER --venv FOLDER --binary FILE [--requests N] [--seed N]
"""

import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys
import threading
import time

from engine import ENGINES, MODEL, ask, end

PATIENCE_S = 90.0
# Without a batch for so long everything that was published has been folded.
CALM_S = 0.3
OUTPUT_TOKENS = 4
CROWD = 4
PROMPT_MAX = 600


class Bridge:
    """A kvbridge on the engine."""

    def __init__(self, args, engine):
        self.args, self.engine, self.process = args, engine, None
        folder = pathlib.Path(args.folder)
        self.config = folder / f"{args.engine}.toml"
        self.config.write_text(
            f'[[sources]]\nengine = "{engine.kind}"\nmodel = "{MODEL}"\ninstance = "127.0.0.1:{engine.port}"\n'
            f'endpoint = "tcp://127.0.0.1:{engine.live}"\nreplay = "tcp://127.0.0.1:{engine.replay}"\n'
            f'metrics = "{engine.url}/metrics"\n{engine.more_source}'
        )
        self.log = folder / f"{args.engine}-kvbridge.log"
        self.log.unlink(missing_ok=True)

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.args.binary, "run", "--listen", "127.0.0.1:0", "--config", self.config],
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )
        self.url = self.process.stdout.readline().split(" on ")[1].strip()

    def stop(self):
        end(self.process)
        self.process = None

    def replica(self):
        return json.loads(ask(f"{self.url}/v1/replicas"))["replicas"][0]

    def match(self, prompt, salt=None):
        body = {"model": MODEL, "token_ids": prompt, "accept": "lower_bound"}
        if salt is not None:
            body["salt"] = salt
        return json.loads(ask(f"{self.url}/v1/match", body))["replicas"][0]

    def tell(self, told, cached, predicted):
        ask(f"{self.url}/v1/feedback", {
            "model": MODEL, "instance": f"127.0.0.1:{self.engine.port}", "rank": 0,
            "input_tokens": told, "cached_tokens": cached, "predicted_tokens": predicted,
        })

    def calm(self):
        """Waits until what was published is folded."""
        seq, since = None, time.monotonic()
        while time.monotonic() < since + CALM_S:
            now = self.replica()["next_seq"]
            if now != seq:
                seq, since = now, time.monotonic()
            time.sleep(0.03)

    def until(self, trust):
        begun = time.monotonic()
        while self.replica()["trust"] != trust:
            if time.monotonic() > begun + PATIENCE_S:
                sys.exit(f"engines: not {trust} after {PATIENCE_S:.0f} s: {self.replica()}")
            time.sleep(0.05)
        return time.monotonic() - begun


class Talk:
    """Prompts that begin alike: a few systems, and conversations that go on from one of them."""

    def __init__(self, seed, block):
        self.dice, self.block = random.Random(seed), block
        self.systems = [self.words(self.dice.randint(3 * block, 6 * block)) for _ in range(5)]
        self.said = []

    def words(self, count):
        return [self.dice.randrange(3, 1024) for _ in range(count)]

    def next(self):
        draw = self.dice.random()
        if self.said and draw < 0.1:
            # Word for word, and of whole blocks: the last of them is computed again all the same.
            prompt = self.dice.choice(self.said)
            prompt = prompt[: len(prompt) // self.block * self.block]
        elif self.said and draw < 0.6:
            prompt = self.dice.choice(self.said) + self.words(self.dice.randint(5, 3 * self.block))
        else:
            prompt = self.dice.choice(self.systems) + self.words(self.dice.randint(5, 4 * self.block))
        prompt = prompt[:PROMPT_MAX]
        self.said = self.said[-30:] + [prompt]
        return prompt


class Stage:
    """What came of the requests of one stage."""

    COLUMNS = ("stage", "requests", "input", "predicted", "observed", "equal", "over", "under", "explained", "trust", "blocks", "alarms")

    def __init__(self, name):
        self.name, self.requests, self.input, self.predicted, self.observed = name, 0, 0, 0, 0
        self.equal = self.over = self.under = 0
        self.explained, self.trust = collections.Counter(), collections.Counter()
        self.blocks, self.alarms, self.wrong = "", "", []

    def compare(self, match, prompt, cached, block, why):
        """`why` explains a difference that is none of the view's."""
        self.requests += 1
        self.input += len(prompt)
        self.observed += cached
        self.trust[match["trust"]] += 1
        if not match["usable"]:
            return
        # At least the last token is computed, so that of a prompt of whole blocks the last is never a hit.
        predicted = min(match["matched_tokens"], (len(prompt) - 1) // block * block)
        if predicted < match["matched_tokens"]:
            self.explained["last_token"] += 1
        self.predicted += predicted
        if predicted == cached:
            self.equal += 1
        elif predicted > cached:
            self.over += 1
        elif match["trust"] == "exact":
            self.under += 1
        else:
            # A lower bound promises no more.
            self.explained["lower_bound"] += 1
            return
        if predicted != cached:
            if why is None:
                self.wrong.append({"predicted": predicted, "observed": cached, "match": match, "prompt": len(prompt)})
            else:
                self.explained[why] += 1

    def cells(self):
        def counted(counter):
            return " ".join(f"{name}:{count}" for name, count in counter.items()) or "-"

        return [
            self.name, self.requests, self.input, self.predicted, self.observed, self.equal, self.over, self.under,
            counted(self.explained), counted(self.trust), self.blocks, self.alarms or "-",
        ]


class Run:
    def __init__(self, args):
        self.args = args
        self.engine = ENGINES[args.engine](args)
        self.bridge = Bridge(args, self.engine)
        self.talk = Talk(args.seed, self.engine.block)
        self.stages, self.notes, self.faults = [], [], []
        self.told = self.cached = 0
        self.tail = None
        self.lock = threading.Lock()

    def note(self, text):
        self.notes.append(text)
        print(f"engines: {text}", flush=True)

    def serve(self, stage, prompt, why=None, salt=None):
        match = self.bridge.match(prompt, salt)
        told, cached = self.engine.complete(prompt, OUTPUT_TOKENS, salt)
        with self.lock:
            self.told += told
            self.cached += cached
            if told != len(prompt):
                self.faults.append(f"{stage.name}: the engine counts {told} tokens of {len(prompt)}")
            stage.compare(match, prompt, cached, self.engine.block, why)
        self.bridge.tell(told, cached, match["matched_tokens"] if match["usable"] else 0)

    def one_by_one(self, stage, count, prompts=None, **how):
        for at in range(count):
            self.serve(stage, prompts[at] if prompts else self.talk.next(), **how)
            self.bridge.calm()

    def over(self, stage):
        standing = self.bridge.replica()
        held = sum(standing["blocks"].values())
        stage.blocks = f"{held}/{self.engine.blocks}"
        stage.alarms = " ".join(standing.get("alarms") or [])
        if held > self.engine.blocks:
            stage.wrong.append({"blocks": held})
        self.stages.append(stage)
        self.faults += [f"{stage.name}: {json.dumps(it)}" for it in stage.wrong]
        print(f"engines: {' | '.join(map(str, stage.cells()))}", flush=True)

    def stage(self, name, count, **how):
        stage = Stage(name)
        self.one_by_one(stage, count, **how)
        self.over(stage)

    def until_evicted(self):
        """Goes on until prompts that were held no longer are."""
        stage, forgotten, held = Stage("until it evicts"), 0, collections.deque(maxlen=40)
        while stage.requests < self.args.requests or forgotten < 10:
            if stage.requests >= 10 * self.args.requests:
                sys.exit(f"engines: {stage.requests} requests, and nothing was evicted")
            prompt = self.talk.next()
            self.serve(stage, prompt)
            self.bridge.calm()
            held.append((prompt, self.bridge.match(prompt)["matched_tokens"]))
            forgotten += sum(self.bridge.match(prompt)["matched_tokens"] < most for prompt, most in held)
        self.over(stage)

    def crowd(self):
        stage = Stage(f"{CROWD} at a time")
        prompts = [[self.talk.next() for _ in range(self.args.requests // 4)] for _ in range(CROWD)]

        def served(mine):
            for prompt in mine:
                # What the others store and evict meanwhile is not in what was said before.
                self.serve(stage, prompt, why="raced")

        threads = [threading.Thread(target=served, args=(mine,)) for mine in prompts]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.bridge.calm()
        self.over(stage)

    def reset(self):
        # Of these something is held, or there would be nothing to see.
        prompts = [prompt for prompt in reversed(self.talk.said) if self.bridge.match(prompt)["matched_tokens"] > 0]
        self.engine.reset()
        self.bridge.calm()
        stage = Stage("emptied, first request")
        self.one_by_one(stage, 1, prompts, why="clear_not_told" if self.engine.tells_clear_late else None)
        self.over(stage)
        self.stage("emptied", self.args.requests // 4)

    def late(self):
        self.bridge.stop()
        for _ in range(self.args.requests // 4):
            told, cached = self.engine.complete(self.talk.next(), OUTPUT_TOKENS)
            self.told, self.cached = self.told + told, self.cached + cached
        self.bridge.start()
        self.note(f"kvbridge started late: exact after {self.bridge.until('exact'):.2f} s")
        self.bridge.calm()
        self.stage("kvbridge started late", self.args.requests // 3)

    def restart(self):
        epoch = self.bridge.replica()["epoch"]
        self.engine.stop()
        time.sleep(1.0)
        away = self.bridge.replica()
        took = self.engine.start()
        back = self.bridge.replica()
        self.note(f"engine restarted in {took:.0f} s: trust {away['trust']} ({away['reason']}) while away, "
                  f"{back['trust']} ({back['reason']}) before its first request")
        self.told = self.cached = 0
        self.stage("restarted, first request", 1, prompts=self.talk.said[-1:])
        begun = self.bridge.until("exact")
        self.stage("restarted", self.args.requests // 3)
        if self.bridge.replica()["epoch"] <= epoch:
            self.faults.append("the epoch of the restarted engine is not above that of before")
        self.note(f"exact {begun:.2f} s after that request")

    def salted(self):
        """The same tokens under other salts are other blocks."""
        stage = Stage("salted")
        # So short that all of them fit beside each other.
        prompts = [self.talk.words(4 * self.engine.block + 5) for _ in range(2)]
        for salt in ("one", "two", None, "one", None, "two"):
            why = None if self.engine.tells_salts else "salt_not_told"
            self.one_by_one(stage, len(prompts), prompts, salt=salt, why=why)
        self.over(stage)

    def counters(self):
        """The engine's counters against its answers, and what kvbridge reads of them."""
        deadline = time.monotonic() + 15
        while True:
            looked_up, had, held, page = self.engine.counters()
            if had == self.cached or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        (pathlib.Path(self.args.folder) / f"{self.args.engine}-metrics.txt").write_text(page)
        self.note(f"its counters: {looked_up} tokens looked up, {had} cached; its answers: {self.told}, {self.cached}")
        if had != self.cached:
            self.faults.append(f"counters say {had} tokens were cached, answers {self.cached}")
        standing = self.bridge.replica()
        if held is not None:
            view = sum(standing["blocks"].values()) * self.engine.block
            self.note(f"its gauges: {held} tokens held in its last step; the view: {view}")
        self.note(f"hashes computed again: {standing.get('hashes')}; hits as kvbridge has them: {standing.get('hits')}")
        if (standing.get("hashes") or {}).get("different"):
            self.faults.append(f"hashes that were computed again differ: {standing['hashes']}")

    def all(self):
        self.note(f"the engine is up after {self.engine.start():.0f} s")
        self.bridge.start()
        flag = [f"--{self.engine.kind}", f"tcp://127.0.0.1:{self.engine.live}"]
        raw = pathlib.Path(self.args.folder) / f"{self.args.engine}-frames.jsonl"
        self.tail = subprocess.Popen(
            [self.args.binary, "tail", *flag, "--raw", raw], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )
        time.sleep(1.0)
        first = self.bridge.replica()
        self.note(f"trust {first['trust']} ({first['reason']}) before the first request")
        self.stage("first request", 1)
        self.until_evicted()
        self.counters()
        self.crowd()
        self.stage("one at a time again", self.args.requests // 3)
        self.reset()
        self.late()
        self.salted()
        self.counters()
        self.restart()
        self.counters()

    def report(self):
        rows = [list(Stage.COLUMNS)] + [[str(cell) for cell in stage.cells()] for stage in self.stages]
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
        lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        text = "\n".join([*lines, *self.notes, *[f"WRONG: {fault}" for fault in self.faults]])
        (pathlib.Path(self.args.folder) / f"{self.args.engine}-report.txt").write_text(text + "\n")
        print(text)

    def close(self):
        end(self.tail)
        self.bridge.stop()
        self.engine.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--venv", required=True)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    run = Run(args)
    try:
        run.all()
    finally:
        run.close()
        run.report()
    if run.faults:
        sys.exit(f"engines: {len(run.faults)} differences that nothing explains")


if __name__ == "__main__":
    main()
