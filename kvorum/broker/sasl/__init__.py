"""SASL (KIP-152, KIP-43): the authentication of clients. Pure state machines; only `key_source`
does I/O."""
