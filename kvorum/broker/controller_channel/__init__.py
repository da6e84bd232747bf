"""The broker's requests to the active controller: registration, heartbeats, ISR changes,
forwarding."""
