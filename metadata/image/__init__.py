"""The content of the metadata log: records, the image they make, and its followers."""
