"""Transactions (KIP-98, KIP-890): the coordinator of transactional ids, and the drivers of its
requests.

`machine` has the rules of one transactional id; `shard` has the ids of one partition of
`__transaction_state`. Both are pure. `markers` sends markers to the leaders of partitions;
`verification` runs in those leaders. The order of writes and answers is in
docs/protocol/transactions.md.
"""
