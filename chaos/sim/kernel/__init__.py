"""What every world of the simulator stands on: virtual time, clocks, disks, a network, a loop."""
