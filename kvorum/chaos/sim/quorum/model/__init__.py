"""A node as the checks know it: its state, its log and the files of its disk."""
