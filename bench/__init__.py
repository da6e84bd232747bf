"""Benchmarks of Kvorum and Apache Kafka on one machine. No test depends on them."""
