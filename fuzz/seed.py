#!/usr/bin/env python3
"""Writes seeds from tests/fixtures into fuzz/corpus/<target>. Run it once before fuzzing."""

import hashlib
import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parent / "tests" / "fixtures"


def decode_vllm():
    """seq frame and payload of every vector and of every live frame"""
    for line in (FIXTURES / "vllm_wire_vectors.txt").read_text().splitlines():
        yield bytes(8) + bytes.fromhex(line.split()[1])
    for path in FIXTURES.glob("vllm-*.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record["socket"] == "sub":
                yield b"".join(map(bytes.fromhex, record["frames_hex"][1:]))


def decode_trtllm_native():
    """seq frame and payload of every frame"""
    for line in (FIXTURES / "trtllm-native-derived.jsonl").read_text().splitlines():
        yield b"".join(map(bytes.fromhex, json.loads(line)["frames_hex"][-2:]))


def decode_sglang():
    """length of the topic, topic, seq frame and payload of every live frame"""
    for path in FIXTURES.glob("sglang-*.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record["socket"] == "sub":
                topic, seq, payload = map(bytes.fromhex, record["frames_hex"])
                for topic in (topic, b"\0sgl-kv-epoch=1f\0sgl-kv-snapshot=2e"):
                    yield bytes([len(topic)]) + topic + seq + payload


def answers_sglang():
    """messages of snapshots, whole and cut, and what servers say of their sockets"""
    header = bytes.fromhex("9701a431663265002a29a2623102")
    chunk = bytes.fromhex("9292c091fb92fb9107")

    def message(kind, payload):
        return bytes([kind]) + len(payload).to_bytes(2, "big") + payload

    yield message(0, header) + message(1, chunk) + message(2, b"")
    yield message(0, header) + message(2, b"")
    yield message(3, b"snapshot provider busy")
    yield (
        b'{"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":5657,"topic":"kv@sgl",'
        b'"block_size":16,"dp_size":1,"replay_endpoint_port_base":5658},"served_model_name":"tiny"}'
    )


def decode_trtllm():
    """number of ranks, then answers: the whole one, and each event as one of its own"""
    for path in FIXTURES.glob("trtllm-serializer-*.jsonl"):
        lines = path.read_bytes().splitlines()
        yield b"\1[" + b",".join(lines) + b"]"
        for ranks in (b"\1", b"\2"):
            yield ranks + b"\0".join(b"[" + line + b"]" for line in lines)
            yield from (ranks + b"[" + line + b"]" for line in lines)


TARGETS = {
    "decode_vllm": decode_vllm,
    "decode_sglang": decode_sglang,
    "answers_sglang": answers_sglang,
    "decode_trtllm": decode_trtllm,
    "decode_trtllm_native": decode_trtllm_native,
}

for target, seeds in TARGETS.items():
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds():
        (folder / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    print(f"{target}: {len(list(folder.iterdir()))} inputs")
