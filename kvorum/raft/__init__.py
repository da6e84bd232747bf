"""Consensus over opaque batches, after KRaft (KIP-595): `core` decides, `node` carries out."""
