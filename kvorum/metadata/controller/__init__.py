"""The controller: its decisions about the metadata, its two images, and its driver."""
