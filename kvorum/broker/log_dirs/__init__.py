"""The broker's data directories: the state of each, and the replicas in it."""
