"""Dynamic configs: the one table of keys, and which value of a key holds. Pure."""
