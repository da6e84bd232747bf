"""Checkpoint files: bytes only. Frames with a checksum each, a footer, an atomic appearance.

The quorum issue brings writer jobs, transfer and retention; the format and the store stand here.
"""
