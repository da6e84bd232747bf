"""The load: real clients (librdkafka) that write all their operations to the history."""
