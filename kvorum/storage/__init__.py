"""One segmented log in Apache Kafka's on-disk format, used for metadata and for partitions.

`log/log.py` is the entry point. All code here is synchronous, takes the time as an argument and
reaches the disk only through `runtime.disk`.
"""
