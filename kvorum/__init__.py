"""Kvorum: a Kafka-compatible cluster with a KRaft-style metadata quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvorum.chaos.testing.cluster import Cluster

__all__ = ["Cluster", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Imported when it is asked for: the command line and every node import this package.
    if name == "Cluster":
        from kvorum.chaos.testing.cluster import Cluster

        return Cluster
    raise AttributeError(f"module 'kvorum' has no attribute {name!r}")
