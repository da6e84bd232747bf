"""The base of every simulated world: virtual time, clocks, disks, a network, an event loop."""
