"""A log's folder read as it lies: dump and verify."""
