"""Changes of the metadata as records of `__kvorum_events`, written by the leader of its partition.

Off by default (`metadata.events.topic.enable`): then nothing here is imported.
"""
