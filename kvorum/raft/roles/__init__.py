"""One module for each family of roles: how a node in that role reacts to each event."""
