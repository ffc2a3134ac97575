"""An engine's two sockets on libzmq: PUB and the replay ROUTER, driven by JSON lines.

Used by the tests of adapters/zmq and of the root crate; tests/peers/ensure_venv.sh makes the
python that runs it. It plays the live messages of a capture (tests/fixtures/*.jsonl) or made-up
ones.

    zmq_peer.py [--capture FILE] [options]

  --capture FILE       play its `sub` messages in order, with their own topic, seq and payload
  --size N             without a capture: payload of N bytes (default 100), seq 0, 1, 2, ...
  --topic T            without a capture: the topic (default empty)
  --framing topic|plain  replies [topic, seq, payload] or [seq, payload] after the delimiter
  --journal N          batches kept for replay (default 10000)
  --socket xpub|pub    pub is what engines use; xpub can tell that a subscription has arrived
  --router-hwm N       the ROUTER's send limit (0 = none; engines: 1000, newer 2 * (journal + 1))
  --live-port P --replay-port P   0 = any free port (default)
  --live-connect P     the publisher connects to a subscriber bound at port P
  --withhold 3,4       seqs that are in the journal only: lost live
  --burn 5             seqs that are nowhere
  --hole 6             seqs that are published but missing in replies
  --hole-answers N     only the next N replies have the holes (default: all)
  --no-end             replies have no end marker
  --stall-after N      replies stop for ever after N batches
  --heartbeat-ms N     ZMTP heartbeats on the publisher

Commands on stdin, one JSON object a line; each is answered by one line on stdout, in order:

  {"cmd":"publish","n":5}         -> {"event":"published","n":5,"seqs":[0,1,2,3,4]}
                                     n is smaller at a capture's end
  {"cmd":"wait_subscriber"}       -> {"event":"subscriber"}
                                     after a subscription since the last start (xpub only)
  {"cmd":"set","no_end":true,...} -> {"event":"set"}
                                     withhold, burn, hole (lists), no_end, stall_after, framing,
                                     hole_answers
  {"cmd":"stop"}                  -> {"event":"stopped"}     both sockets are closed
  {"cmd":"start","from":0}        -> {"event":"started"}     same ports, empty journal;
                                     from = the next capture position or seq; with "publish":N
                                     the journal holds N batches before the first request
  {"cmd":"restart","from":0}      -> {"event":"restarted"}   stop and start
                                     with "keep_live":true only the journal is new: a restart
                                     behind a proxy, which no connection shows
  {"cmd":"stats"}                 -> {"event":"stats","requests":N,"malformed":N,"journal":N}
  {"cmd":"exit"}                  -> the process ends

The first line is {"event":"ready","live_port":P,"replay_port":P}. A closed stdin ends the process.
One thread does everything, as in the engines: publishing waits while a replay is sent.
"""

import argparse
import json
import os
import struct
import sys
import time
from collections import deque

import zmq

END_SEQ = b"\xff" * 8


def numbers(text):
    return {int(part) for part in text.split(",") if part}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--capture")
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--topic", default="")
    parser.add_argument("--framing", choices=["topic", "plain"], default="topic")
    parser.add_argument("--journal", type=int, default=10000)
    parser.add_argument("--socket", choices=["xpub", "pub"], default="xpub")
    parser.add_argument("--router-hwm", type=int, default=1000)
    parser.add_argument("--live-port", type=int, default=0)
    parser.add_argument("--replay-port", type=int, default=0)
    parser.add_argument("--live-connect", type=int)
    parser.add_argument("--withhold", type=numbers, default=set())
    parser.add_argument("--burn", type=numbers, default=set())
    parser.add_argument("--hole", type=numbers, default=set())
    parser.add_argument("--hole-answers", type=int)
    parser.add_argument("--no-end", action="store_true")
    parser.add_argument("--stall-after", type=int)
    parser.add_argument("--heartbeat-ms", type=int, default=0)
    return parser.parse_args()


def load(path):
    with open(path) as lines:
        records = (json.loads(line) for line in lines)
        return [[bytes.fromhex(frame) for frame in record["frames_hex"]]
                for record in records if record["socket"] == "sub" and record.get("dir") == "in"]


def say(**event):
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


class Peer:
    def __init__(self, args):
        self.args = args
        self.context = zmq.Context()
        self.capture = load(args.capture) if args.capture else None
        self.poller = zmq.Poller()
        self.poller.register(sys.stdin.fileno(), zmq.POLLIN)
        self.live_port, self.replay_port = args.live_port, args.replay_port
        self.live = self.router = None
        self.requests = self.malformed = 0
        self.waiting = False
        self.start(0)

    def start(self, position):
        self.position = position
        self.journal = deque(maxlen=self.args.journal)
        if self.live is None:
            self.start_live()
        self.router = self.context.socket(zmq.ROUTER)
        self.router.set(zmq.LINGER, 0)
        self.router.set(zmq.SNDHWM, self.args.router_hwm)
        self.replay_port = bind(self.router, self.replay_port)
        self.poller.register(self.router, zmq.POLLIN)

    def start_live(self):
        self.subscribed = False
        self.live = self.context.socket(zmq.XPUB if self.args.socket == "xpub" else zmq.PUB)
        self.live.set(zmq.LINGER, 0)
        self.live.set(zmq.SNDHWM, 100000)
        if self.args.heartbeat_ms:
            self.live.set(zmq.HEARTBEAT_IVL, self.args.heartbeat_ms)
        if self.args.live_connect:
            self.live.connect(f"tcp://127.0.0.1:{self.args.live_connect}")
        else:
            self.live_port = bind(self.live, self.live_port)
        if self.args.socket == "xpub":
            self.live.set(zmq.XPUB_VERBOSE, 1)
            self.poller.register(self.live, zmq.POLLIN)

    def stop(self, keep_live=False):
        for socket in (self.router,) if keep_live else (self.live, self.router):
            if socket is None:
                continue
            if socket in self.poller:
                self.poller.unregister(socket)
            socket.close()
        self.router = None
        if not keep_live:
            self.live = None

    def next_message(self):
        if self.capture is None:
            seq = self.position
            fill = bytes([seq % 251])
            return [self.args.topic.encode(), struct.pack(">Q", seq), fill * self.args.size]
        return self.capture[self.position] if self.position < len(self.capture) else None

    def publish(self, count):
        seqs = self.send(count)
        say(event="published", n=len(seqs), seqs=seqs)

    def send(self, count):
        seqs = []
        while len(seqs) < count and (message := self.next_message()) is not None:
            self.position += 1
            seq = struct.unpack(">Q", message[1][:8])[0]
            seqs.append(seq)
            if seq in self.args.burn:
                continue
            if seq not in self.args.withhold:
                self.live.send_multipart(message)
            self.journal.append((seq, message))
        return seqs

    def answer(self):
        frames = self.router.recv_multipart()
        self.requests += 1
        if len(frames) != 3:
            self.malformed += 1
            return
        identity, delimiter, start = frames[0], frames[1], int.from_bytes(frames[2], "big")
        skip = 0 if self.args.framing == "topic" else 1
        sent = 0
        hole = self.args.hole
        if self.args.hole_answers is not None:
            hole = hole if self.args.hole_answers > 0 else set()
            self.args.hole_answers -= 1
        for seq, message in self.journal:
            if seq < start or seq in hole:
                continue
            if sent == self.args.stall_after:
                return
            self.router.send_multipart([identity, delimiter, *message[skip:]])
            sent += 1
        if not self.args.no_end:
            self.router.send_multipart([identity, delimiter, *[b"", END_SEQ, b""][skip:]])

    def command(self, line):
        command = json.loads(line)
        name = command.pop("cmd")
        if name == "publish":
            self.publish(command["n"])
        elif name == "wait_subscriber":
            self.waiting = True
        elif name == "set":
            for key, value in command.items():
                setattr(self.args, key, set(value) if isinstance(value, list) else value)
            say(event="set")
        elif name == "stop":
            self.stop()
            say(event="stopped")
        elif name == "start":
            self.start(command.get("from", 0))
            self.send(command.get("publish", 0))
            say(event="started")
        elif name == "restart":
            self.stop(command.get("keep_live", False))
            self.start(command.get("from", 0))
            self.send(command.get("publish", 0))
            say(event="restarted")
        elif name == "stats":
            say(event="stats", requests=self.requests, malformed=self.malformed,
                journal=len(self.journal))
        elif name == "exit":
            return False
        else:
            say(event="error", unknown=name)
        return True

    def run(self):
        say(event="ready", live_port=self.live_port, replay_port=self.replay_port)
        buffered = b""
        while True:
            ready = dict(self.poller.poll())
            if self.live in ready:
                self.subscribed |= self.live.recv()[:1] == b"\x01"
            if self.router in ready:
                self.answer()
            if self.waiting and self.subscribed:
                self.waiting = False
                say(event="subscriber")
            if sys.stdin.fileno() in ready:
                chunk = os.read(sys.stdin.fileno(), 65536)
                if not chunk:
                    return
                buffered += chunk
            # answers come in the order of commands, so nothing is read while one is waiting
            while not self.waiting and b"\n" in buffered:
                line, buffered = buffered.split(b"\n", 1)
                if not self.command(line):
                    return
                if self.waiting and self.subscribed:
                    self.waiting = False
                    say(event="subscriber")


def bind(socket, port):
    if not port:
        return socket.bind_to_random_port("tcp://127.0.0.1")
    # after a stop the port is freed by libzmq's own thread, some time later
    for _ in range(500):
        try:
            socket.bind(f"tcp://127.0.0.1:{port}")
            return port
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE:
                raise
            time.sleep(0.01)
    raise SystemExit(f"port {port} stays in use")


if __name__ == "__main__":
    Peer(arguments()).run()
    os._exit(0)
