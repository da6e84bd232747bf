"""The quorum's own figures: commits beside etcd, fail-over, and what many partitions cost."""

import runtime.grpc_experiments  # noqa: F401 - before anything imports grpc
