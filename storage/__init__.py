"""One segmented log, in Apache Kafka's on-disk format, for metadata and for partitions.

Start at `log/log.py`, the face. Everything here is synchronous, takes time as an argument and
reaches the disk only through `runtime.disk`.
"""
