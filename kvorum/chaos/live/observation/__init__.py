"""Each node's own view of a live cluster: that node alone is asked for it."""
