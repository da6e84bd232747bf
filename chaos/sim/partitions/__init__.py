"""Partitions with their logs, their clients and all that replicates them, in virtual time."""
