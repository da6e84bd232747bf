"""Coordinators: state machines whose memory is a partition of an internal topic.

The leader of the partition hosts its *shard*: it loads the shard from the log, steps it, appends
the shard's records, and answers once they are replicated. `groups` and `transactions` are the
shards.
"""
