"""The rules of share-partitions and share sessions. Pure."""
