"""The command line, and the entry of every process of a cluster."""

import runtime.grpc_experiments  # noqa: F401 - before anything imports grpc
