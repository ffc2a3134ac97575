"""The engines that drive.py knows: how each is started, asked, emptied and read."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

# Ten times what an idle machine takes.
START_S = 600.0
CONTEXT = 1024
MODEL = "tiny"
SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(\{[^}]*\})? (\S+)", re.MULTILINE)


def ask(url, body=None, timeout=60):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return answer.read().decode()


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def end(process):
    """SIGTERM to all that it started, as an orchestrator does; SIGKILL for what is still there."""
    if process is None:
        return
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sent)
        except ProcessLookupError:
            pass
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            continue


class Engine:
    """One engine on this machine, with a pool so small that a few dozen prompts make it evict."""

    kind = ""
    reset_path = ""
    # Names of the engine's own counters: tokens looked up, and those it had.
    looked_up = had = ()
    # Gauges of what its pool holds, in tokens, where it has any. As of its last step: a page that was only
    # begun then counts too.
    holds = ()
    # How the engine's configuration names its hashes, where kvbridge is told.
    more_source = ""
    # Whether its events say under which salt a block is.
    tells_salts = True
    # Its clear is told with the next step: until then nobody can know of it.
    tells_clear_late = False

    def __init__(self, args):
        self.args = args
        self.folder = pathlib.Path(args.folder)
        self.port, self.live, self.replay = free_ports(3)
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = None
        self.log = self.folder / f"{args.engine}.log"
        self.log.unlink(missing_ok=True)

    def events(self):
        return {
            "enable_kv_cache_events": True, "publisher": "zmq", "topic": "kv@engines",
            "endpoint": f"tcp://*:{self.live}", "replay_endpoint": f"tcp://*:{self.replay}",
        }

    def start(self):
        begun = time.monotonic()
        argv, more = self.command()
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **more}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in argv], cwd=self.folder, env=env, stdout=log, stderr=log, start_new_session=True
            )
        while True:
            try:
                ask(f"{self.url}{self.health}", timeout=5)
                return time.monotonic() - begun
            except (OSError, urllib.error.URLError):
                pass
            if self.process.poll() is not None or time.monotonic() > begun + START_S:
                tail = self.log.read_text(errors="replace").splitlines()[-30:]
                sys.exit("\n".join([*tail, f"engines: the engine did not start, see {self.log}"]))
            time.sleep(0.5)

    def stop(self):
        end(self.process)
        self.process = None

    def reset(self):
        ask(f"{self.url}{self.reset_path}", {})

    def counters(self):
        """Tokens looked up, found and held, as the engine itself counts them; its whole page beside."""
        page = ask(f"{self.url}/metrics")
        sums = {}
        for name, _, value in SAMPLE.findall(page):
            sums[name] = sums.get(name, 0.0) + float(value)

        def first(names):
            return next((int(sums[name]) for name in names if name in sums), None)

        held = [int(sums[name]) for name in self.holds if name in sums]
        return first(self.looked_up), first(self.had), sum(held) if held else None, page


class Vllm(Engine):
    kind = "vllm"
    health = "/health"
    reset_path = "/reset_prefix_cache"
    looked_up = ("vllm:prefix_cache_queries_total",)
    had = ("vllm:prefix_cache_hits_total",)
    tells_clear_late = True

    def command(self):
        argv = [
            pathlib.Path(self.args.venv) / "bin" / "vllm", "serve", self.folder / "model",
            "--host", "127.0.0.1", "--port", self.port, "--served-model-name", MODEL, "--enforce-eager",
            "--dtype", "bfloat16", "--max-model-len", CONTEXT, "--max-num-seqs", 8,
            "--max-num-batched-tokens", CONTEXT, "--enable-prefix-caching", "--enable-prompt-tokens-details",
            "--block-size", self.block, "--num-gpu-blocks-override", self.blocks,
            "--kv-events-config", json.dumps(self.events()),
        ]
        return argv, {
            "VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind", **self.more_env,
        }

    def complete(self, prompt, tokens, salt=None):
        body = {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        if salt is not None:
            body["cache_salt"] = salt
        usage = json.loads(ask(f"{self.url}/v1/completions", body))["usage"]
        return usage["prompt_tokens"], (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


class Vllm16(Vllm):
    # Its attention on CPUs takes 16 with heads of 32, and dies with 32. One block is the null block.
    block, blocks = 16, 96
    # Without a seed its hashes differ from process to process.
    more_env = {"PYTHONHASHSEED": "0"}
    # Not before 0.17: the salt is in the hash alone.
    tells_salts = False
    more_source = 'hash_scheme = "sha256"\nhash_seed = "0"\n'


class Vllm32(Vllm):
    # Its attention on CPUs takes multiples of 32 alone.
    block, blocks = 32, 48
    more_env = {}
    more_source = 'hash_scheme = "sha256"\n'


class Sglang(Engine):
    kind = "sglang"
    health = "/get_model_info"
    reset_path = "/flush_cache"
    looked_up = ("sglang:prompt_tokens_total",)
    had = ("sglang:cached_tokens_total",)
    holds = ("sglang:kv_evictable_tokens", "sglang:kv_used_tokens")
    block, blocks = 16, 96

    def command(self):
        argv = [
            pathlib.Path(self.args.venv) / "bin" / "python", "-m", "sglang.launch_server",
            "--model-path", self.folder / "model", "--served-model-name", MODEL, "--device", "cpu",
            "--host", "127.0.0.1", "--port", self.port, "--attention-backend", "torch_native",
            "--sampling-backend", "pytorch", "--grammar-backend", "none", "--page-size", self.block,
            "--max-total-tokens", self.block * self.blocks, "--mem-fraction-static", "0.1",
            "--context-length", CONTEXT, "--disable-cuda-graph", "--skip-server-warmup", "--enable-metrics",
            "--kv-events-config", json.dumps({k: v for k, v in self.events().items() if k != "enable_kv_cache_events"}),
        ]
        return argv, {}

    def complete(self, prompt, tokens, salt=None):
        body = {"input_ids": prompt, "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}}
        if salt is not None:
            body["cache_salt"] = salt
        told = json.loads(ask(f"{self.url}/generate", body))["meta_info"]
        return told["prompt_tokens"], told["cached_tokens"]


class Fake(Engine):
    """The modelled engine: to try drive.py without a real one."""

    health = "/health"
    block, blocks = 16, 96

    def command(self):
        return [
            self.args.binary, "--log", "error", "fake-engine", "--engine", self.kind, "--blocks", self.blocks,
            "--pub", self.live, "--replay", self.replay, "--http", f"127.0.0.1:{self.port}", "--model", MODEL,
            "--topic", "kv@engines",
        ], {}

    def complete(self, prompt, tokens, salt=None):
        body = {"model": MODEL, "prompt": prompt, "max_tokens": tokens}
        if salt is not None:
            body["cache_salt"] = salt
        usage = json.loads(ask(f"{self.url}/v1/completions", body))["usage"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


class FakeVllm(Fake):
    kind, reset_path, tells_clear_late = "vllm", "/reset_prefix_cache", True
    looked_up, had = Vllm.looked_up, Vllm.had


class FakeSglang(Fake):
    kind, reset_path = "sglang", "/flush_cache"
    looked_up, had = Sglang.looked_up, Sglang.had


ENGINES = {
    "vllm-0.16": Vllm16, "vllm-0.32": Vllm32, "sglang-0.5.23": Sglang, "fake-vllm": FakeVllm, "fake-sglang": FakeSglang,
}
