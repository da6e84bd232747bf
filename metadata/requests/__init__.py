"""The requests to the active controller, and its answers, as plain values."""
