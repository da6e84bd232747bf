"""Limits on the rates of clients and of replicas that are being moved."""
