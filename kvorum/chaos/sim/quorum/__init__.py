"""The quorum's world: nodes with the real core and log, clients of a replicated list, faults and
checks."""
