"""A broker's configs: static ones from its file, and dynamic ones from the metadata."""
