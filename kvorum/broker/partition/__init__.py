"""One partition on one broker: the pure core, its log, and the checks of what clients append."""
