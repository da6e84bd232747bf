"""Spark: the job over exported metadata and histories, and topics as a source (`kafka_source`).

Imports no other package of Kvorum.
"""
