#!/bin/sh
# Regenerates kvorum/rpc/*_pb2*.py from proto/. The result is committed, so that an install needs
# no compiler. Generate with the lowest supported grpcio-tools: stubs refuse older runtimes.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" -m grpc_tools.protoc -Iproto --python_out=. --grpc_python_out=. --pyi_out=. \
    proto/kvorum/rpc/common.proto proto/kvorum/rpc/raft.proto \
    proto/kvorum/rpc/controller.proto proto/kvorum/rpc/admin.proto
