"""The broker's line to the active controller: registration, heartbeats, forwarded requests."""
