"""Coordinators: state machines whose state is kept in a partition of an internal topic.

The leader of the partition hosts its *shard*. The host loads the shard from the log, gives the
shard events, appends the shard's records, and sends the answers once the records are replicated.
The shards are in `groups`, `transactions` and `events`.
"""
