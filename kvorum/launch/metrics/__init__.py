"""A node's reports on itself over HTTP: its metrics, its health, its part in the quorum.

`setup` starts the server of a node that has `metrics.listener`. `rows` is the table of all metrics:
the page and docs/metrics.md are made of it.
"""
