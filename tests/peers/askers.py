"""Many peers that ask a ROUTER for everything from 0 on, on libzmq.

    askers.py ENDPOINT read PEERS         each asks once and reads to the end marker
    askers.py ENDPOINT deaf PEERS ASKS    each asks ASKS times and reads nothing
    askers.py ENDPOINT strange            requests with a huge number, a topic of 1 MiB, no number at all

Prints {"ended":N}, the peers that came to the end marker within 30 s, or {"asked":N}; then waits for
stdin to close.
"""

import json
import struct
import sys
import time

import zmq

END = b"\xff" * 8

endpoint, mode, *counts = sys.argv[1:]
context = zmq.Context()
context.set(zmq.MAX_SOCKETS, 4096)


def connect():
    dealer = context.socket(zmq.DEALER)
    dealer.set(zmq.LINGER, 0)
    if mode == "deaf":
        # The library reads ahead for whoever does not read.
        dealer.set(zmq.RCVHWM, 1)
        dealer.set(zmq.RCVBUF, 4096)
    dealer.connect(endpoint)
    return dealer


first = [b"", struct.pack(">Q", 0)]
if mode == "strange":
    dealer = connect()
    requests = [[b"", b"\xff" * 8], [b"", b"\xff" * 12], [*first, b"t" * (1 << 20)], [b""], first * 9]
    for request in requests:
        dealer.send_multipart(request)
    print(json.dumps({"asked": len(requests)}), flush=True)
else:
    dealers = [connect() for _ in range(int(counts[0]))]
    if mode == "deaf":
        for _ in range(int(counts[1])):
            for dealer in dealers:
                dealer.send_multipart(first)
            time.sleep(0.01)
        print(json.dumps({"asked": len(dealers) * int(counts[1])}), flush=True)
    else:
        poller, ended, deadline = zmq.Poller(), 0, time.monotonic() + 30
        for dealer in dealers:
            dealer.send_multipart(first)
            poller.register(dealer, zmq.POLLIN)
        while ended < len(dealers) and time.monotonic() < deadline:
            for dealer, _ in poller.poll(100):
                if dealer.recv_multipart()[-2] == END:
                    poller.unregister(dealer)
                    ended += 1
        print(json.dumps({"ended": ended}), flush=True)
sys.stdin.read()
