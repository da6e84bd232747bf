"""The only door to the outside: clocks, disks, tasks, RPC plumbing, configuration, errors, ids."""
