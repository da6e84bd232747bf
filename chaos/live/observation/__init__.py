"""The answers of each node of a live cluster about the cluster, asked of that node alone."""
