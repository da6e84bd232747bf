"""The content of the metadata log: records, the image that they make, and their publishers."""
