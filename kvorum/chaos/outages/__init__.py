"""The outages that a run's clients saw: their lengths, and the faults that they belong to. Pure."""
