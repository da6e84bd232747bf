"""The arguments and results of a step of a group shard: requests, configs, records, effects."""
