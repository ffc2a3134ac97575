#!/usr/bin/env bash
# SMG's own protobuf messages for Python: target/smg, and the path of its python.
exec "$(dirname "$0")/venv.sh" smg smg-requirements.txt 'grpc, smg_grpc_proto'
