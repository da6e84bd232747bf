"""The ground of every world of the simulator: virtual time, clocks, disks, a network, a loop."""
