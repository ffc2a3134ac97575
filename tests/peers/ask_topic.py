"""Asks a ROUTER of several lines for everything from 0 on, on libzmq.

    ask_topic.py ENDPOINT [TOPIC]      a third frame with the topic asks for that line alone

Prints {"topics":{TOPIC:[seq, ...]}} when the end marker has come; nothing within 30 s is an error.
"""

import json
import struct
import sys

import zmq

END = b"\xff" * 8

dealer = zmq.Context().socket(zmq.DEALER)
dealer.setsockopt(zmq.RCVTIMEO, 30_000)
dealer.connect(sys.argv[1])
dealer.send_multipart([b"", struct.pack(">Q", 0), *(topic.encode() for topic in sys.argv[2:])])
topics = {}
while True:
    _, topic, seq, _ = dealer.recv_multipart()
    if seq == END:
        break
    topics.setdefault(topic.decode(), []).append(struct.unpack(">Q", seq)[0])
print(json.dumps({"topics": topics}))
