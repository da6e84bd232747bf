"""The load: real clients (librdkafka) that write everything they do to the history."""
