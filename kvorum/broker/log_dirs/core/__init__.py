"""Moves between the data directories of one broker: the rules, pure."""
