"""Logins as state machines: bytes in, bytes or a user out. Pure."""
