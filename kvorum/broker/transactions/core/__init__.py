"""Transactional ids as a shard's state machine, and the markers that are owed. Pure."""
