#!/usr/bin/env python3
"""kill -9 of every process at random, under load: engine, bridge, nats-server and index, each started
again at its place. Every few kills the load pauses until bridge and index are exact again, and both are
compared with the engine block by block. At last the disk of the bridge is full for a while (needs root,
for a small tmpfs) and its file descriptors are used up. Prints each comparison's time and their median.
Linux; standard library only.

usage: kills.py [--binary FILE] [--seconds N] [--seed N]
"""

import argparse
import os
import pathlib
import random
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "containers"))
from check import ask, blocks  # noqa: E402

PATIENCE_S = 120.0
KILLS_BETWEEN_LOOKS = 5
FILES_MAX = 64
KEY = "fake.i=3A1.0"


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class World:
    def __init__(self, binary, folder):
        live, replay, engine, bus, bridge, index = free_ports(6)
        self.folder = pathlib.Path(folder)
        self.engine, self.bridge, self.index = (
            f"http://127.0.0.1:{port}" for port in (engine, bridge, index)
        )
        script = ROOT / "tests" / "peers" / "ensure_nats.sh"
        nats = subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        (self.folder / "nats.conf").write_text(
            f'listen: "127.0.0.1:{bus}"\njetstream {{ store_dir: "{folder}/store" }}\n'
        )
        common = f'[bus]\nkind = "nats"\nurl = "nats://127.0.0.1:{bus}"\n[recovery]\nidle_probe = "1s"\n'
        (self.folder / "bridge.toml").write_text(
            f'{common}[state]\ndir = "{folder}/state"\ninterval = "1s"\n'
            f'[[sources]]\nengine = "vllm"\nmodel = "fake"\ninstance = "i:1"\n'
            f'endpoint = "tcp://127.0.0.1:{live}"\nreplay = "tcp://127.0.0.1:{replay}"\n'
        )
        (self.folder / "index.toml").write_text(common)
        run = [binary, "--log", "error", "run", "--config"]
        self.commands = {
            "nats-server": [nats, "-c", f"{folder}/nats.conf"],
            "engine": [
                binary, "fake-engine", "--engine", "vllm", "--blocks", "512", "--step-ms", "1",
                "--pub", str(live), "--replay", str(replay), "--http", f"127.0.0.1:{engine}",
            ],
            "bridge": [*run, "bridge.toml", "--listen", f"127.0.0.1:{bridge}"],
            "index": [*run, "index.toml", "--listen", f"127.0.0.1:{index}"],
        }
        self.running = {}
        self.loaded = threading.Event()
        self.over = threading.Event()

    def start(self, name, **more):
        quiet = subprocess.DEVNULL
        self.running[name] = subprocess.Popen(
            self.commands[name], cwd=self.folder, stdout=quiet, stderr=quiet, **more
        )

    def kill(self, name, **more):
        self.running[name].send_signal(signal.SIGKILL)
        self.running[name].wait()
        self.start(name, **more)

    def burst(self, count):
        try:
            ask(f"{self.engine}/control", {"fault": "burst", "count": count})
        except (OSError, urllib.error.URLError):
            pass  # It was killed.

    def load(self):
        while not self.over.is_set():
            self.loaded.wait(timeout=1)
            if self.loaded.is_set():
                self.burst(20)
            time.sleep(0.05)

    def look(self, what):
        """Waits until both are exact, compares them with the engine, and says how long it took."""
        self.loaded.clear()
        started = time.monotonic()
        last = ""
        while time.monotonic() < started + PATIENCE_S:
            self.burst(1)
            time.sleep(0.1)
            try:
                truth = lines(f"{self.engine}/truth?rank=0")
                views = [lines(f"{url}/v1/replicas/{KEY}/snapshot") for url in (self.bridge, self.index)]
            except (OSError, urllib.error.URLError, ValueError, KeyError) as error:
                last = repr(error)
                continue
            heads = [(view[0]["trust"], view[0]["resume_seq"]) for view in views]
            last = f"engine at {truth[0]['next_seq']}, {heads}"
            if all(head == ("exact", truth[0]["next_seq"]) for head in heads):
                for name, view in zip(("bridge", "index"), views):
                    ghosts, missing = view[1] - truth[1], truth[1] - view[1]
                    if ghosts or missing:
                        sys.exit(f"kills: {name} is exact with {len(ghosts)} ghosts, {len(missing)} missing")
                took = time.monotonic() - started
                print(f"kills: {what}: exact and true after {took:.1f} s, {len(truth[1])} blocks", flush=True)
                self.loaded.set()
                return took
        sys.exit(f"kills: {what}: not exact within {PATIENCE_S:.0f} s: {last}")


def lines(url):
    head, held = blocks(ask(url))
    return head, set(held.items())


def metric(url, name):
    found = [line for line in ask(f"{url}/metrics").splitlines() if line.startswith(name)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in found)


def until(what, fact):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if fact():
                return
        except OSError:
            pass
        time.sleep(0.2)
    sys.exit(f"kills: {what} did not come true")


def disk_full(world):
    state = world.folder / "state"
    state.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", state], check=False)
    if mounted.returncode != 0:
        print("kills: disk full: skipped, a tmpfs needs root")
        return
    try:
        world.kill("bridge")
        world.look("bridge on a small disk")
        rest = state / "rest"
        with rest.open("wb") as file:
            try:
                while True:
                    file.write(b"\0" * 4096)
                    file.flush()
            except OSError:
                pass
        failed = "kvbridge_checkpoints_failed_total"
        until("a checkpoint that cannot be written", lambda: metric(world.bridge, failed) > 0)
        world.look("disk full")
        rest.unlink(missing_ok=True)
        before = metric(world.bridge, "kvbridge_checkpoints_written_total")
        written = lambda: metric(world.bridge, "kvbridge_checkpoints_written_total") > before
        until("a checkpoint is written again", written)
        world.kill("bridge")
        world.look("disk free again, bridge killed")
    finally:
        world.running["bridge"].kill()
        world.running["bridge"].wait()
        subprocess.run(["umount", state], check=True)
        world.start("bridge")


def files_exhausted(world):
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX))
    world.kill("bridge", preexec_fn=limit)
    world.look(f"bridge with {FILES_MAX} files")
    port = int(world.bridge.rsplit(":", 1)[1])
    held = []
    for _ in range(2 * FILES_MAX):
        try:
            held.append(socket.create_connection(("127.0.0.1", port), timeout=2))
        except OSError:
            break
    # With none left the engine's new connections cannot be made.
    world.kill("engine")
    for _ in range(20):
        world.burst(5)
        time.sleep(0.1)
    for each in held:
        each.close()
    if world.running["bridge"].poll() is not None:
        sys.exit("kills: the bridge ended without files")
    world.look(f"files used up by {len(held)} connections, engine killed, then let go")
    world.kill("bridge")


def main():
    default = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "kvbridge"
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=str(default))
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    dice = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        world = World(args.binary, folder)
        try:
            for name in world.commands:
                world.start(name)
            threading.Thread(target=world.load, daemon=True).start()
            world.look("start")
            kills, took, ends = dict.fromkeys(world.commands, 0), [], time.monotonic() + args.seconds
            while time.monotonic() < ends:
                names = [dice.choice(list(world.commands)) for _ in range(KILLS_BETWEEN_LOOKS)]
                for name in names:
                    time.sleep(dice.uniform(0.1, 3.0))
                    world.kill(name)
                    kills[name] += 1
                took.append(world.look(", ".join(names)))
            counts = ", ".join(f"{name} {count}" for name, count in kills.items())
            print(f"kills: {counts}; {len(took)} comparisons, 0 ghosts, 0 missing")
            print(f"kills: exact after median {statistics.median(took):.1f} s, most {max(took):.1f} s")
            disk_full(world)
            files_exhausted(world)
        finally:
            world.over.set()
            for process in world.running.values():
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
