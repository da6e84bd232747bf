"""Dynamic configs: the tables of keys, and the rules for their effective values. Pure."""
