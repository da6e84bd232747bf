"""The page of a cluster: `kvorum console`, a process of its own beside the nodes."""
