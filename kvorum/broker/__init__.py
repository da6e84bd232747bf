"""The data plane: partitions, replication between brokers, and the Kafka protocol's server."""
