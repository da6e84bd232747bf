"""How fast clients and replicas being moved may go."""
