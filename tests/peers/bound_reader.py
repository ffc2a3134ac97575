"""A router that binds, on libzmq: a SUB that publishers connect to, as llm-d's EPP has it in its
global-socket mode. Decodes with msgpack's own Python library.

    bound_reader.py PORT [PREFIX]      0 = any free port; the prefix is kv@ by default

The first line is {"event":"bound","port":P}; then one line for each message:
{"topic":T,"seq":N,"events":[{"clear":true} | {"store":[hash, ...],"parent":hash|null} |
{"remove":[hash, ...]}]}. A closed stdin ends the process.
"""

import json
import struct
import sys
import threading
import os

import msgpack
import zmq


def event(fields):
    if isinstance(fields, dict):
        tag = fields["type"]
        hashes, parent = fields.get("block_hashes"), fields.get("parent_block_hash")
    else:
        tag = fields[0]
        hashes = fields[1] if len(fields) > 1 else None
        parent = fields[2] if tag == "BlockStored" else None
    if tag == "AllBlocksCleared":
        return {"clear": True}
    if tag == "BlockStored":
        return {"store": hashes, "parent": parent}
    return {"remove": hashes}


def say(line):
    print(json.dumps(line), flush=True)


def watch_stdin():
    sys.stdin.read()
    os._exit(0)


def main():
    socket = zmq.Context().socket(zmq.SUB)
    prefix = sys.argv[2] if len(sys.argv) > 2 else "kv@"
    socket.setsockopt(zmq.SUBSCRIBE, prefix.encode())
    socket.bind(f"tcp://127.0.0.1:{sys.argv[1] if sys.argv[1] != '0' else '*'}")
    port = int(socket.getsockopt(zmq.LAST_ENDPOINT).rsplit(b":", 1)[1])
    threading.Thread(target=watch_stdin, daemon=True).start()
    say({"event": "bound", "port": port})
    while True:
        topic, seq, payload = socket.recv_multipart()
        events = msgpack.unpackb(payload, raw=False, strict_map_key=False)[1]
        say({"topic": topic.decode(), "seq": struct.unpack(">Q", seq)[0],
             "events": [event(fields) for fields in events]})


main()
