"""Tools that read a log's folder without changing it: dump and verify."""
