"""The cost of logs for a broker: while they are idle, and at its starts. See `__main__`."""
