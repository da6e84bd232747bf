"""What logs cost a broker: while nobody uses them, and at its starts. See `__main__`."""
