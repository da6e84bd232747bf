"""Consumer groups: the shard of one partition of `__consumer_offsets`. Pure; see `shard`."""
