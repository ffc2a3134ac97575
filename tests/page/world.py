"""The programs that the page is tried on: engines on free ports, and a kvbridge that reads them."""

import json
import os
import subprocess
import time
import urllib.request
from contextlib import contextmanager

PROGRAM = os.environ["KVBRIDGE"]
# Nothing here takes as long; whoever waits waits for a fact.
PATIENCE_S = 30
# A fake engine has no more.
RANKS_MAX = 64


def ask(url, body=None, token=None):
    headers = {"content-type": "application/json"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return answer.read().decode()


def until(what, fact):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = fact()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come true")


class World:
    """Engines of some ranks, one kvbridge."""

    def __init__(self, engines, url):
        self.engines = engines
        self.url = url

    def fault(self, rank=None, **fault):
        if rank is None:
            for engine in self.engines:
                ask(f"{engine}/control", fault)
        else:
            engine = self.engines[rank // RANKS_MAX]
            ask(f"{engine}/control?rank={rank % RANKS_MAX}", fault)

    def replicas(self, token=None):
        return json.loads(ask(f"{self.url}/v1/replicas", token=token))["replicas"]

    def metric(self, series):
        """Of the program; 0 while there is none."""
        lines = ask(f"{self.url}/metrics").splitlines()
        found = [line.split()[-1] for line in lines if line.startswith(f"{series} ")]
        return int(found[0]) if found else 0

    def moves_on(self):
        """One batch or more; a request whose blocks are all there has none. The cursor behind."""
        seq = self.replicas()[0]["next_seq"]

        def fact():
            self.fault(fault="burst", count=1)
            return self.replicas()[0]["next_seq"] > seq

        until("a batch", fact)
        engine = json.loads(ask(f"{self.engines[0]}/truth").splitlines()[0])["next_seq"]
        until("all applied", lambda: self.replicas()[0]["next_seq"] == engine)
        return engine

    def all_exact(self, count, token=None):
        def fact():
            replicas = self.replicas(token)
            return len(replicas) == count and all(it["trust"] == "exact" for it in replicas)

        until(f"{count} replicas exact", fact)


def start(arguments, env=None):
    return subprocess.Popen(
        [PROGRAM, "--log", "off", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )


@contextmanager
def world(ranks=1, env=None):
    processes = []
    try:
        sources = ["run", "--listen", "127.0.0.1:0"]
        engines = []
        for first in range(0, ranks, RANKS_MAX):
            engine = start(
                ["fake-engine", "--engine", "vllm", "--ports-json", "--pub", "0", "--replay", "0"]
                + ["--http", "127.0.0.1:0", "--dp", str(min(RANKS_MAX, ranks - first))]
                + ["--blocks", "64", "--step-ms", "1"]
            )
            processes.append(engine)
            ports = json.loads(engine.stdout.readline())
            engines.append(ports["http"])
            for number, rank in enumerate(ports["ranks"], first):
                sources += ["--vllm", rank["live"], "--replay", rank["replay"], "--model", "fake"]
                sources += ["--instance", f"10.0.{number // 8}.{number % 8}:8000"]
        bridge = start(sources, env)
        processes.append(bridge)
        url = bridge.stdout.readline().split(" on ")[1].strip()
        yield World(engines, url)
    finally:
        for process in processes:
            process.kill()
            process.wait()
