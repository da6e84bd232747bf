"""The start of a log: the files, epochs and producers in its folder, after a clean stop or a
kill."""
