"""Kvorum: a Kafka-compatible cluster with a KRaft-style metadata quorum."""

__version__ = "0.1.0"
