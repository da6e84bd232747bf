"""Schemas of Apache Kafka 4.4 that kio does not have yet, in the form of kio's own.

Every other module of this folder is generated: `python -m tests.schemas.generate` makes them from
the JSON in Kafka's jars. `kio_codec.message_class` looks here first.
"""
