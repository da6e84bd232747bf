"""One module a role family: what a node in that role does with each event."""
