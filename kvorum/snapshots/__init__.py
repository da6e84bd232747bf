"""Checkpoint files: their format, their store, their transfer and their retention.

The content is opaque bytes. Each frame has a checksum, a footer ends the file, and a file appears
atomically.
"""
