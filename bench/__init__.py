"""Kvorum beside Apache Kafka on one machine. A benchmark: nothing in the tests depends on it."""
