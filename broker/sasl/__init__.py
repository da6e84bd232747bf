"""SASL (KIP-152, KIP-43): how a client proves who it is. Pure state machines, no I/O."""
