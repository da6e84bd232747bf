"""The start of a log: its files, epochs and producers, after a clean stop or a kill."""
