"""Looking into the metadata: as a tree, at any offset, as tables, in words."""
