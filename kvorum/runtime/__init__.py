"""All access to the outside: clocks, disks, tasks, RPC, configuration; also errors and ids."""
