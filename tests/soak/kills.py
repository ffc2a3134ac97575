#!/usr/bin/env python3
"""kill -9 of every process at random, under load: engine, bridge, nats-server and index, each started
again at its place. Every few kills the load pauses until bridge and index are exact again, and both are
compared with the engine block by block. Then, one after the other: the bridge's disk is full and the
server's (small tmpfs, needs root), the bridge's file descriptors are used up, and the wall clocks of bridge,
index and engine are moved a day back, ahead and right again while they run (needs libfaketimeMT.so.1: Debian's
package faketime has it, and PyPI's libfaketime its source). A part that cannot run is said to be skipped.
Prints each comparison's time and their median. Linux; standard library only.

usage: kills.py [--binary FILE] [--seconds N] [--seed N] [--faketime FILE]
                [--only kills,disk,server_disk,files,clock]
"""

import argparse
import collections
import contextlib
import glob
import http.client
import json
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "containers"))
from check import ask, blocks  # noqa: E402

PATIENCE_S = 120.0
KILLS_BETWEEN_LOOKS = 5
FILES_MAX = 64
# What asking a process that is killed may end with.
GONE = (OSError, http.client.HTTPException)
KEY = "fake.i=3A1.0"
DAY_S = 86_400
# Longer than a heartbeat counts, and than the index's lease.
HOLD_S = 20


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
        # So little that a small disk has room for what the server sets aside for it.
        limit = 'retention_bytes = "32MiB"\n'
        common = f'[bus]\nkind = "nats"\nurl = "nats://127.0.0.1:{bus}"\n{limit}[recovery]\nidle_probe = "1s"\n'
        (self.folder / "bridge.toml").write_text(
            f'{common}[state]\ndir = "{folder}/state"\ninterval = "1s"\n'
            f'[[sources]]\nengine = "vllm"\nmodel = "fake"\ninstance = "i:1"\n'
            f'endpoint = "tcp://127.0.0.1:{live}"\nreplay = "tcp://127.0.0.1:{replay}"\n'
        )
        # Shorter than what an operator waits before a full disk is seen to.
        (self.folder / "index.toml").write_text(f'{common}lease = "15s"\n')
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
        self.preloaded = {}
        self.loaded = threading.Event()
        self.over = threading.Event()

    def start(self, name, **more):
        quiet = subprocess.DEVNULL
        env = {**os.environ, **self.preloaded.get(name, {})}
        self.running[name] = subprocess.Popen(
            self.commands[name], cwd=self.folder, stdout=quiet, stderr=quiet, env=env, **more
        )

    def kill(self, name, **more):
        ended = self.running[name].poll()
        if ended is not None:
            sys.exit(f"kills: {name} had ended by itself, with {ended}")
        self.running[name].send_signal(signal.SIGKILL)
        self.running[name].wait()
        self.start(name, **more)

    def burst(self, count):
        try:
            ask(f"{self.engine}/control", {"fault": "burst", "count": count})
        except GONE:
            pass

    def load(self):
        while not self.over.is_set():
            self.loaded.wait(timeout=1)
            if self.loaded.is_set():
                self.burst(20)
            time.sleep(0.05)

    def look(self, what, names=("bridge", "index")):
        """Waits until they are exact, compares them with the engine, and says how long it took."""
        self.loaded.clear()
        urls = [getattr(self, name) for name in names]
        started = time.monotonic()
        last = ""
        while time.monotonic() < started + PATIENCE_S:
            self.burst(1)
            time.sleep(0.1)
            try:
                truth = lines(f"{self.engine}/truth?rank=0")
                views = [lines(f"{url}/v1/replicas/{KEY}/snapshot") for url in urls]
            except (*GONE, ValueError, KeyError) as error:
                last = repr(error)
                continue
            heads = [(view[0]["trust"], view[0]["resume_seq"]) for view in views]
            last = f"engine at {truth[0]['next_seq']}, {heads}"
            if all(head == ("exact", truth[0]["next_seq"]) for head in heads):
                for name, view in zip(names, views):
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


def until(what, fact, told=str):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if fact():
                return
        except GONE:
            pass
        time.sleep(0.2)
    sys.exit(f"kills: {what} did not come true {told()}")


@contextlib.contextmanager
def small_disk(world, name, folder, size):
    """A disk of its own for one process, which is started again on it and, afterwards, without it."""
    folder.mkdir(exist_ok=True)
    world.running[name].kill()
    world.running[name].wait()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=False)
    world.start(name)
    try:
        yield mounted.returncode == 0
    finally:
        world.running[name].kill()
        world.running[name].wait()
        if mounted.returncode == 0:
            subprocess.run(["umount", folder], check=True)
        world.start(name)


def fill(folder):
    """Writes until nothing more fits."""
    rest = folder / "rest"
    with contextlib.suppress(OSError), rest.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    return rest


def disk_full(world):
    state = world.folder / "state"
    # Room for two checkpoints, the old one and the next: their digests, one a batch, make them grow.
    with small_disk(world, "bridge", state, "1m") as mounted:
        if not mounted:
            print("kills: disk full: skipped, a tmpfs needs root")
            return
        world.look("bridge on a small disk")
        rest = fill(state)
        failed = "kvbridge_checkpoint_failures_total"
        until("a checkpoint that cannot be written", lambda: metric(world.bridge, failed) > 0)
        world.look("disk of the bridge full")
        world.kill("bridge")
        world.look("disk of the bridge full, bridge killed")
        # Asked while there is no room: the first one that is written after that counts.
        before = metric(world.bridge, "kvbridge_checkpoints_written_total")
        rest.unlink()
        written = lambda: metric(world.bridge, "kvbridge_checkpoints_written_total") > before
        sizes = lambda: {file.name: file.stat().st_size for file in state.iterdir()}
        until("a checkpoint is written again", written, sizes)
        world.kill("bridge")
        world.look("disk of the bridge free again, bridge killed")
    world.look("bridge on its old disk")


def server_disk_full(world):
    store = world.folder / "store"
    with small_disk(world, "nats-server", store, "256m") as mounted:
        if not mounted:
            print("kills: disk of the server full: skipped, a tmpfs needs root")
            return
        world.look("server on a small, empty disk")
        rest = fill(store)
        world.loaded.set()
        until("the server takes nothing", lambda: states(world.bridge) != "ready")
        # The bridge reads its engine as before. The index has what the server still took, as of that seq,
        # and hears that the bridge is further: for a lease it may be late, then nothing is believed.
        started = time.monotonic()
        world.look("disk of the server full, the bridge alone", names=("bridge",))
        world.loaded.set()
        print(f"kills: meanwhile the index is {standing(world.index)}, the bus {states(world.bridge)}")
        until("the index believes nothing", lambda: standing(world.index) == "none, log_behind")
        print(f"kills: the index is {standing(world.index)} after {time.monotonic() - started:.1f} s")
        until("the alarm rings", lambda: "log_behind" in ask(f"{world.index}/v1/alarms"))
        rest.unlink()
        # A server that met a full disk may have given up its store: it is started again, as its operator does.
        world.kill("nats-server")
        world.look("disk of the server free again, server killed")
    world.look("server on its old disk")


def standing(url):
    (found,) = json.loads(ask(f"{url}/v1/replicas"))["replicas"]
    return f"{found['trust']}, {found['reason']}"


def states(url):
    found = [line for line in ask(f"{url}/metrics").splitlines() if line.startswith("kvbridge_bus_state")]
    return " ".join(line.split('state="')[1].split('"')[0] for line in found if line.endswith(" 1"))


def clocks_moved(world, library):
    if not library:
        print("kills: clocks moved: skipped, there is no libfaketime")
        return
    groups = ("bridge",), ("index",), ("engine", "bridge", "index")
    for name in groups[-1]:
        # The wall clock alone: no system call moves the one that only goes on.
        world.preloaded[name] = {
            "LD_PRELOAD": str(library), "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1",
            "FAKETIME_TIMESTAMP_FILE": f"{world.folder}/clock-{name}",
        }
        move(world, name, 0)
        world.kill(name)
    world.look("all with clocks that can be moved")
    for names in groups:
        for days in (-1, 1, 0):
            clock_moved(world, names, days)
    world.preloaded.clear()


def clock_moved(world, names, days):
    what = f"clock of {', '.join(names)} {days:+} d"
    for name in names:
        move(world, name, days)
    world.look(what)
    # What was said and proven before the move counts for so long.
    watch(world, what, HOLD_S)
    world.look(f"{what}, {HOLD_S} s later")
    for killed in dict.fromkeys(("engine", *names)):
        world.kill(killed)
        world.look(f"{what}, {killed} killed")
    for name in set(names) - {"engine"}:
        # Its trust changed with the engine's life, and is dated by its own clock.
        off = since(getattr(world, name)) - time.time() - days * DAY_S
        if abs(off) > DAY_S / 2:
            sys.exit(f"kills: {what}: the clock of the {name} is off by {off:+.0f} s: it was not moved")


def watch(world, what, seconds):
    """Under load: how often each was not exact, and why."""
    seen = {"bridge": [], "index": []}
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for name, found in seen.items():
            found.append(standing(getattr(world, name)))
        time.sleep(0.1)
    for name, found in seen.items():
        lost = dict(collections.Counter(each for each in found if not each.startswith("exact")))
        print(f"kills: {what}: {name} not exact in {sum(lost.values())} of {len(found)} looks {lost or ''}")


def move(world, name, days):
    (world.folder / f"clock-{name}").write_text(f"{days:+}d\n")


def since(url):
    """When its replica's trust last changed, by its own clock."""
    (found,) = json.loads(ask(f"{url}/v1/replicas"))["replicas"]
    return found["since"] / 1e3


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


def kills(world, dice, seconds):
    count, took, ends = dict.fromkeys(world.commands, 0), [], time.monotonic() + seconds
    while time.monotonic() < ends:
        names = [dice.choice(list(world.commands)) for _ in range(KILLS_BETWEEN_LOOKS)]
        for name in names:
            time.sleep(dice.uniform(0.1, 3.0))
            world.kill(name)
            count[name] += 1
        took.append(world.look(", ".join(names)))
    counts = ", ".join(f"{name} {times}" for name, times in count.items())
    print(f"kills: {counts}; {len(took)} comparisons, 0 ghosts, 0 missing")
    print(f"kills: exact after median {statistics.median(took):.1f} s, most {max(took):.1f} s", flush=True)


def main():
    default = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "kvbridge"
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=str(default))
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parts = {
        "kills": lambda world: kills(world, random.Random(args.seed), args.seconds),
        "disk": disk_full, "server_disk": server_disk_full, "files": files_exhausted,
        "clock": lambda world: clocks_moved(world, args.faketime),
    }
    parser.add_argument("--only", default=",".join(parts))
    debian = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    parser.add_argument("--faketime", type=pathlib.Path, default=next(iter(debian), None))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        world = World(args.binary, folder)
        try:
            for name in world.commands:
                world.start(name)
            threading.Thread(target=world.load, daemon=True).start()
            world.look("start")
            for part in args.only.split(","):
                parts[part](world)
        finally:
            world.over.set()
            for process in world.running.values():
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
