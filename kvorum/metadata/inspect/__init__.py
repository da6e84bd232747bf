"""Inspection of the metadata: as a tree, at any offset, as tables, as text."""
