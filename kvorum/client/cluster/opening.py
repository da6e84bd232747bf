"""The controllers of a cluster, found through its brokers if need be."""

from __future__ import annotations

from kvorum.client.cluster.broker_backend import BrokerBackend
from kvorum.client.controllers import BlockingControllerClient


def controllers_of(
    kind: str, addresses: list[tuple[str, int]], timeout_s: float
) -> BlockingControllerClient:
    """A client of the controllers themselves. kind: broker or controller. Brokers are asked for the
    controllers' addresses."""
    no_quorum = None
    if kind == "broker":
        backend = BrokerBackend(addresses, timeout_s)
        try:
            addresses, no_quorum = backend.controllers()
        finally:
            backend.close()
    return BlockingControllerClient(addresses, timeout_s, no_quorum=no_quorum)
