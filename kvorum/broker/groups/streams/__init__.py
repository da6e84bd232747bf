"""Streams groups (KIP-1071): the coordinator assigns tasks of a topology to members. Pure."""
