"""A publisher that speaks just enough ZMTP to misbehave. Standard library only.

    hostile_peer.py MODES [LISTENERS]

MODES is a comma-separated list: the n-th connection of a listener gets the n-th mode, later ones
the last. The first line on stdout is {"event":"ready","ports":[...]}, one port per listener; then
{"event":"accepted","port":P,"n":N,"mode":M} per connection. A closed stdin ends the process.

  good       a real PUB: a batch every 10 ms, seq from 0 on each connection, topic "topic"
  silent     accepts and says nothing
  silent_ready   greets and says nothing more
  deaf       full handshake and subscription, then nothing
  garbage    random bytes in place of the greeting
  http       an HTTP error
  rst_greet  resets after its greeting
  rst_ready  resets right after its READY
  fin_ready  closes right after its READY
  fin_sub    closes after the subscription
  rst_sub    resets after the subscription
  ping       one batch, then a PING command
  error      one batch, then an ERROR command
  bombN      one batch, then the header of a frame of 2^N bytes and no more
  more       one batch, then frames that each say another one follows, without end
  router_bombN  says it is a ROUTER and sends that header alone
  two_frames  a message of two frames, then as good
  good10     ten batches, then closes
"""

import json
import os
import socket
import struct
import sys
import threading
import time

GREETING = b"\xff" + b"\0" * 8 + b"\x7f" + b"\x03\x00" + b"NULL" + b"\0" * 16 + b"\0" + b"\0" * 31


def say(**event):
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def command(body):
    return b"\x04" + bytes([len(body)]) + body


def ready(kind):
    def prop(name, value):
        return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
    return command(b"\x05READY" + prop(b"Socket-Type", kind) + prop(b"Identity", b""))


def message(*frames):
    out = b""
    for number, frame in enumerate(frames):
        out += bytes([number < len(frames) - 1, len(frame)]) + frame
    return out


def batch(seq):
    return message(b"topic", struct.pack(">Q", seq), b"p" * 100)


def receive(conn, count):
    out = b""
    while len(out) < count:
        part = conn.recv(count - len(out))
        if not part:
            raise EOFError
        out += part
    return out


def receive_frame(conn):
    return receive(conn, receive(conn, 2)[1])


def reset(conn):
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()


def before_handshake(conn, mode):
    if mode == "silent":
        conn.recv(1 << 20)
        time.sleep(1000)
    if mode == "garbage":
        conn.sendall(b"\x01" + os.urandom(4096))
        time.sleep(0.5)
    if mode == "http":
        conn.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" + b"x" * 200)
        time.sleep(0.2)
    return mode in ("silent", "garbage", "http")


def handshake(conn, mode):
    """True when the connection goes on."""
    conn.sendall(GREETING)
    receive(conn, 64)
    if mode == "silent_ready":
        time.sleep(1000)
    if mode == "rst_greet":
        reset(conn)
        return False
    receive_frame(conn)
    conn.sendall(ready(b"ROUTER" if mode.startswith("router_") else b"PUB"))
    if mode == "rst_ready":
        reset(conn)
        return False
    if mode == "fin_ready":
        return False
    receive_frame(conn)
    if mode == "rst_sub":
        reset(conn)
        return False
    return mode != "fin_sub"


def stream(conn, mode):
    if mode == "deaf":
        time.sleep(1000)
    if mode == "ping":
        conn.sendall(batch(0) + command(b"\x04PING" + b"\x00\x64" + b"ctx"))
        time.sleep(1)
        return
    if mode == "error":
        conn.sendall(batch(0) + command(b"\x05ERROR\x03bad"))
        time.sleep(1)
        return
    if "bomb" in mode:
        if not mode.startswith("router_"):
            conn.sendall(batch(0))
            time.sleep(0.05)
        conn.sendall(b"\x02" + struct.pack(">Q", 1 << int(mode.split("bomb")[1])))
        time.sleep(3)
        return
    if mode == "more":
        conn.sendall(batch(0))
        while True:
            conn.sendall((b"\x01\xff" + b"m" * 255) * 1000)
    if mode == "two_frames":
        conn.sendall(message(b"topic", b"body"))
    seq = 0
    while not (mode == "good10" and seq == 10):
        conn.sendall(batch(seq))
        seq += 1
        time.sleep(0.01)


def serve(conn, mode):
    try:
        if not before_handshake(conn, mode) and handshake(conn, mode):
            stream(conn, mode)
        conn.close()
    except (EOFError, OSError):
        conn.close()


def listen(listener, modes):
    port = listener.getsockname()[1]
    for number in range(1 << 30):
        conn, _ = listener.accept()
        mode = modes[min(number, len(modes) - 1)]
        say(event="accepted", port=port, n=number, mode=mode)
        threading.Thread(target=serve, args=(conn, mode), daemon=True).start()


def main():
    modes = sys.argv[1].split(",")
    listeners = [socket.create_server(("127.0.0.1", 0), backlog=100)
                 for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1)]
    say(event="ready", ports=[listener.getsockname()[1] for listener in listeners])
    for listener in listeners:
        threading.Thread(target=listen, args=(listener, modes), daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
