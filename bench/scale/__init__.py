"""Costs as a cluster grows: observers, partitions, connections, data. See bench/scale.md."""
