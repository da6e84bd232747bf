"""The Kafka APIs, a file each, what their handlers share, and the list of them (`registry`)."""
