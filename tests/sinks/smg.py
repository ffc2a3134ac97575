#!/usr/bin/env python3
"""SMG's gateway, unmodified from PyPI (`smg` 1.13.0), in front of modelled engines: hit rates when it reads them by SMG's own relay, and by a kvbridge.

    target/smg/bin/python tests/sinks/smg.py KVBRIDGE [--requests N] [--only direct|bridge]

Wants smg, smg-grpc-servicer and pyzmq beside tests/peers/smg-requirements.txt. Conversations of several turns are sent one after the other
to the gateway (`--policy cache_aware`). At a third of them batches of one engine are lost, in its journal too, with evictions among them; at two
thirds the other engine starts anew. Printed for each way: prompt tokens that an engine had cached, and the turns behind a first one
of which the chosen engine had nothing.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from smg_worker import MODEL, Worker, ask

WORDS = 9000


def tokenizer(folder):
    """One word, one token."""
    vocab = {"<unk>": 0, "<eos>": 1, "<bos>": 2, **{f"w{at}": at for at in range(3, WORDS)}}
    files = {
        "tokenizer.json": {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}},
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 65536},
        "config.json": {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}}
    for name, value in files.items():
        with open(os.path.join(folder, name), "w") as file:
            json.dump(value, file)


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def engine(kvbridge, blocks):
    command = [kvbridge, "fake-engine", "--engine", "vllm", "--ports-json", "--pub", "0", "--replay", "0", "--http", "127.0.0.1:0",
               "--step-ms", "1", "--blocks", str(blocks)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    return process, json.loads(process.stdout.readline())


def bridge(kvbridge, folder, at, ports):
    """A kvbridge that reads one engine, and where its sink is."""
    listen, name = free_port(), os.path.join(folder, f"bridge-{at}.toml")
    with open(name, "w") as file:
        file.write(f'[[sinks]]\npreset = "smg"\nlisten = "127.0.0.1:{listen}"\ngrace = "500ms"\n')
    rank = ports["ranks"][0]
    command = [kvbridge, "run", "--listen", "127.0.0.1:0", "--config", name, "--vllm", rank["live"], "--replay", rank["replay"],
               "--model", MODEL, "--instance", f"i:{at}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(os.path.join(folder, f"bridge-{at}.log"), "w"))
    process.stdout.readline()
    return process, f"127.0.0.1:{listen}"


class Turns:
    """Conversations: each turn is all before it and some more words."""

    def __init__(self, seed):
        self.random, self.open, self.next = random.Random(seed), [], 0

    def words(self, count):
        return [f"w{self.random.randrange(3, WORDS)}" for _ in range(count)]

    def take(self):
        if len(self.open) < 24:
            self.open.append({"id": self.next, "turn": 0, "words": self.words(160)})
            self.next += 1
            talk = self.open[-1]
        else:
            talk = self.random.choice(self.open)
            talk["words"] += self.words(64)
        talk["turn"] += 1
        if talk["turn"] == 6:
            self.open.remove(talk)
        return talk


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metrics(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return [line for line in lines if line.startswith(("smg_kv_index_blocks", "smg_kv_index_memb", "smg_kv_event_", "smg_kv_events_"))
            and "_bucket" not in line and "_seconds" not in line]


async def run(way, given):
    folder = tempfile.mkdtemp(prefix=f"smg-{way}-")
    tokenizer(folder)
    engines = [engine(given.kvbridge, given.blocks) for _ in range(2)]
    processes = [process for process, _ in engines]
    workers, urls = [], []
    for at, (_, ports) in enumerate(engines):
        ask(f"{ports['http']}/control", {"fault": "burst", "count": 1})
        address = None
        if way == "bridge":
            process, address = bridge(given.bridge or given.kvbridge, folder, at, ports)
            processes.append(process)
        worker = Worker(f"engine-{at}", ports, folder, address)
        urls.append(f"grpc://127.0.0.1:{await worker.start()}")
        workers.append(worker)
    port, prometheus = free_port(), free_port()
    log = open(os.path.join(folder, "gateway.log"), "w")
    gateway = subprocess.Popen(
        [os.path.join(os.path.dirname(sys.executable), "smg"), "launch", "--host", "127.0.0.1", "--port", str(port), "--worker-urls", *urls,
         "--policy", "cache_aware", "--block-size", "16", "--model-path", folder, "--backend", "vllm",
         "--prometheus-host", "127.0.0.1", "--prometheus-port", str(prometheus), "--log-level", given.log_level],
        stdout=log, stderr=log)
    processes.append(gateway)
    try:
        return await drive(way, given, workers, (port, prometheus), folder)
    finally:
        for process in reversed(processes):
            process.terminate()
        for worker in workers:
            await worker.server.stop(0.2)


async def drive(way, given, workers, ports, folder):
    port, prometheus = ports
    body = {"model": MODEL, "prompt": "w3 w4 w5", "max_tokens": 4}
    url = f"http://127.0.0.1:{port}/v1/completions"
    for _ in range(300):
        try:
            status, text = await asyncio.to_thread(post, url, body)
        except OSError as error:
            status, text = 0, str(error)
        if status == 200:
            break
        await asyncio.sleep(0.2)
    else:
        raise SystemExit(f"the gateway serves nothing: {status} {text}; {folder}/gateway.log")
    turns, phases, failed = Turns(given.seed), [], 0
    for worker in workers:
        worker.served.clear()
    for at in range(given.requests):
        if at == given.requests // 3:
            # Batches that are nowhere any more, and evictions in them.
            control = f"{workers[0].engine['http']}/control"
            for fault in [{"fault": "drop", "count": 40}, {"fault": "hole", "count": 40}, {"fault": "burst", "count": 45}]:
                await asyncio.to_thread(ask_control, control, fault)
        if at == 2 * given.requests // 3:
            await asyncio.to_thread(ask_control, f"{workers[1].engine['http']}/control", {"fault": "restart"})
        talk = turns.take()
        body = {"model": MODEL, "prompt": " ".join(talk["words"]), "max_tokens": 4}
        before = [len(worker.served) for worker in workers]
        status, text = await asyncio.to_thread(post, url, body)
        failed += status != 200
        chosen = [worker for worker, count in zip(workers, before) if len(worker.served) > count]
        if status == 200 and chosen:
            _, prompt, cached = chosen[-1].served[-1]
            phases.append((3 * at // given.requests, talk["turn"], prompt, cached, chosen[-1].name))
    row = {"way": way, "requests": len(phases), "failed": failed}
    for phase, name in enumerate(["before", "after the loss", "after the restart"]):
        of = [it for it in phases if it[0] == phase]
        later = [it for it in of if it[1] > 1]
        row[name] = {"hit_rate": round(sum(it[3] for it in of) / max(1, sum(it[2] for it in of)), 3),
                     "later_turns": len(later), "blind": sum(it[3] == 0 for it in later)}
    row["hit_rate"] = round(sum(it[3] for it in phases) / max(1, sum(it[2] for it in phases)), 3)
    row["blind"] = sum(row[name]["blind"] for name in ["before", "after the loss", "after the restart"])
    row["by_engine"] = {worker.name: sum(it[4] == worker.name for it in phases) for worker in workers}
    row["streams"] = {worker.name: worker.streams[-6:] for worker in workers}
    await asyncio.sleep(2)
    row["metrics"] = await asyncio.to_thread(metrics, prometheus)
    row["folder"] = folder
    return row


def ask_control(url, fault):
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(fault).encode()), timeout=30) as answer:
        answer.read()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("kvbridge")
    arguments.add_argument("--bridge", help="another build for the bridges")
    arguments.add_argument("--requests", type=int, default=600)
    arguments.add_argument("--blocks", type=int, default=700)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--log-level", default="info")
    arguments.add_argument("--only", choices=["direct", "bridge"])
    given = arguments.parse_args()
    for way in [given.only] if given.only else ["direct", "bridge"]:
        row = asyncio.run(run(way, given))
        print(json.dumps(row, indent=1), flush=True)


main()
