"""Experiments on real processes: every connection of the cluster runs through toxiproxy."""
