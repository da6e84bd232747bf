"""Metadata records as events for consumers: the records of `__kvorum_events`. Pure but `source`."""
