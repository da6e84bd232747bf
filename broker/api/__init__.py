"""The Kafka APIs, a file each; what their handlers share; and the table of all of them
(`registry`)."""
