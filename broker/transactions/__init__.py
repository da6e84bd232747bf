"""Transactions (KIP-98, KIP-890): the coordinator of transactional ids, and what it drives.

`machine` decides for one transactional id, `shard` holds those of one partition of
`__transaction_state` (both pure); `markers` tells the partitions; `verification` is the other side,
in each partition's leader. Order of writes and answers: docs/protocol/transactions.md.
"""
