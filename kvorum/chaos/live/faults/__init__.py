"""Faults carried out on a live system, and undone."""
