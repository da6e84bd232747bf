"""Compaction: the range to clean, the cleaning of batches, and the swap of segment files."""
