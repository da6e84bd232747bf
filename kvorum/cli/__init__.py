"""The command line, and the entry of every process of a cluster."""
