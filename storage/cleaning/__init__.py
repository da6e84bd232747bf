"""Compaction: what may be cleaned, what is left of it, and the swap of files."""
