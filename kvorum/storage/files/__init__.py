"""The files of one log: segments, indexes, epochs, producers, checkpoints."""
