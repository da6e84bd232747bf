"""The requests to the active controller, and its replies, as plain values."""
