"""A reader of the ZeroMQ bus on libzmq, written from docs/specs/bus_zmq.md alone.

    zmq_bus_reader.py REQUESTS     tcp://host:port of the bridge's ROUTER

Commands on stdin, one JSON object a line; each is answered by one line on stdout:

  {"cmd":"send","frames":[...]}                    frames as they are
  {"cmd":"send_query","ticket":0,"words":[...]}    a request, without reading its answer
  {"cmd":"ask","words":[...]}                      -> {"parts":[word, ...]}
  {"cmd":"subscribe","live":L,"key":K}
  {"cmd":"heartbeat"}                              -> {"status":{...}}
  {"cmd":"live","count":N}                         -> {"epoch":E,"seqs":[...]}
  {"cmd":"replay","key":K,"epoch":E,"first":S}     -> {"first":F,"next":N,"seqs":[...],"said":[[S,T],...]}
  {"cmd":"snapshot","key":K}                       -> {"epoch":E,"promised":N,"records":N}

Envelopes that cover no seq are not among `seqs`; `said` is what they say of trust, and where.
What does not come within 30 s ends the process.
"""

import json
import os
import struct
import sys

import zmq

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from envelope_reader import Reader  # noqa: E402

PROTOCOL = b"kvbus1"


def number(value):
    return struct.pack(">Q", value)


def value(frame):
    return struct.unpack(">Q", frame)[0]


def msgpack(frame):
    return Reader(frame).value()


class Client:
    def __init__(self, requests):
        self.context = zmq.Context()
        self.dealer = self.socket(zmq.DEALER, requests)
        self.ticket = 0

    def socket(self, kind, endpoint):
        socket = self.context.socket(kind)
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RCVTIMEO, 30000)
        socket.connect(endpoint)
        return socket

    def send_query(self, ticket, word, *arguments):
        self.dealer.send_multipart([b"", PROTOCOL, number(ticket), word, *arguments])

    def ask(self, word, *arguments):
        self.send_query(self.ticket, word, *arguments)
        delimiter, protocol, ticket, *parts = self.dealer.recv_multipart()
        assert (delimiter, protocol) == (b"", PROTOCOL)
        self.ticket = value(ticket)
        return parts

    def subscribe(self, live, key):
        self.hints, self.statuses = b"kv.v1.hint." + key, b"kv.v1.status." + key
        self.sub = self.socket(zmq.SUB, live)
        self.sub.subscribe(self.hints)
        self.sub.subscribe(self.statuses)

    def next(self, subject):
        while True:
            came, seq, epoch, payload = self.sub.recv_multipart()
            if came == subject:
                return value(seq), value(epoch), msgpack(payload)

    def heartbeat(self):
        seq, epoch, status = self.next(self.statuses)
        assert (status["next_seq"], status["epoch"]) == (seq, epoch), status
        return status

    def live(self, count):
        epochs, seqs = set(), []
        while len(seqs) < count:
            seq, epoch, envelope = self.next(self.hints)
            assert (envelope["seq"], envelope["epoch"]) == (seq, epoch)
            epochs.add(epoch)
            if envelope["span"] > 0:
                seqs.append(seq)
        (epoch,) = epochs
        return epoch, seqs

    def replay(self, key, epoch, first):
        seqs, said, after = [], [], 0
        while True:
            word, *parts = self.ask(b"replay", key, number(epoch), number(first), number(after))
            assert word == b"replay", word
            life, oldest, behind, after, *messages = parts
            for seq, payload in zip(messages[::2], messages[1::2]):
                envelope, last = msgpack(payload), value(seq)
                assert envelope["seq"] == last
                if envelope["span"] > 0:
                    seqs.append(last)
                else:
                    said.extend([last, event["trust"]] for event in envelope["events"])
            after = value(after)
            if after == 0:
                numbers = {"first": value(oldest), "next": value(behind)}
                return {**numbers, "seqs": seqs, "said": said}
            epoch, first = value(life), last

    def snapshot(self, key):
        word, name, header = self.ask(b"snapshot", key)
        assert word == b"snapshot", word
        header, records = msgpack(header), 0
        while True:
            word, last, chunk = self.ask(b"records", name)
            assert word == b"records", word
            if value(last):
                break
            records += len(msgpack(chunk))
        promised = header["block_count"]
        return {"epoch": header["epoch"], "promised": promised, "records": records}


def shown(part):
    """Texts as they are, numbers as 16 hex digits."""
    return part.hex() if part[:1] == b"\0" else part.decode()


def perform(client, command):
    kind = command["cmd"]
    key = command.get("key", "").encode()
    if kind == "send":
        client.dealer.send_multipart([frame.encode() for frame in command["frames"]] or [b"x"])
    elif kind == "send_query":
        client.send_query(command["ticket"], *(word.encode() for word in command["words"]))
    elif kind == "ask":
        parts = client.ask(*(word.encode() for word in command["words"]))
        return {"parts": [shown(part) for part in parts]}
    elif kind == "subscribe":
        client.subscribe(command["live"], key)
    elif kind == "heartbeat":
        return {"status": client.heartbeat()}
    elif kind == "live":
        epoch, seqs = client.live(command["count"])
        return {"epoch": epoch, "seqs": seqs}
    elif kind == "replay":
        return client.replay(key, command["epoch"], command["first"])
    elif kind == "snapshot":
        return client.snapshot(key)
    return {}


def main():
    client = Client(sys.argv[1])
    for line in sys.stdin:
        sys.stdout.write(json.dumps(perform(client, json.loads(line))) + "\n")
        sys.stdout.flush()


main()
