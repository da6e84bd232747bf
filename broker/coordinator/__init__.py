"""Coordinators: state machines whose memory is a partition of an internal topic.

Whoever leads the partition hosts its *shard*: loads it from the log, steps it, appends what it
decides and answers once that is replicated. `groups` and `transactions` are the shards.
"""
