"""The quorum's own figures: commits beside etcd, fail-over, and what many partitions cost."""
