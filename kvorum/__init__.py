"""Kvorum: a Kafka-compatible cluster with a KRaft-style metadata quorum."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_MODULES = {"Cluster": "kvorum.chaos.testing.cluster"}
"""The names for people's tests, by the module that is imported when they are asked for: every node
imports this package, and needs none of the chaos lab above it."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'kvorum' has no attribute {name!r}")
