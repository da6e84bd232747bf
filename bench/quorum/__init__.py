"""The quorum's own figures: commits beside etcd, fail-over, and the cost of many partitions."""
