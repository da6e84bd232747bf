"""Import this before grpc, in every program that runs a node.

gRPC's event engine moves each message through a thread of its own on its way to asyncio's. The
poller without it saves that hop: a quarter more commits a second for one writer, a quarter less
CPU of an idle node (docs/adr/007). gRPC reads the variable once, while it is being imported,
and complains about names it does not know, so `pyproject.toml` bounds its version.
"""

import os

EXPERIMENTS = "-event_engine_client,-event_engine_listener"

os.environ.setdefault("GRPC_EXPERIMENTS", EXPERIMENTS)
