"""Faults, experiments, histories, checks and reports; `live` breaks real processes."""
