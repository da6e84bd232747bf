"""The controller: decisions about the metadata, its two images, and its loop."""
