"""From configuration to running processes: one node, or a whole cluster on this machine."""
