#!/usr/bin/env bash
# What test peers and the examples in Python import: target/venv, and the path of its python.
exec "$(dirname "$0")/venv.sh" venv python-requirements.txt 'msgpack, nats, zmq'
