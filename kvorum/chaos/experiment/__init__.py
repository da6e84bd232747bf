"""One experiment: its file, faults, targets, history, checks and report."""
