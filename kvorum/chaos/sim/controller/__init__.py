"""The controller, its brokers and administrators on top of the simulated quorum."""
