"""Clusters for the tests of applications: `Cluster`, and a plugin of pytest."""
