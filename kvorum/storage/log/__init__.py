"""One segmented log: segments, indexes, epochs, producers, retention, flush."""
