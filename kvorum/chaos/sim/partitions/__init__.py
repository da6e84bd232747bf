"""Partitions with their logs, replication and clients, in virtual time."""
