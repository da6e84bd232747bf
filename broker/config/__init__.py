"""A broker's settings: from its file, and from the metadata on top."""
