"""Requests about topics, partitions, brokers and transactions, through brokers or controllers."""
