"""What may be asked of the active controller, and its answers, as plain values."""
