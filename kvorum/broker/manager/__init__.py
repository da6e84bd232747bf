"""All replicas of one broker: their set, their periodic jobs, the consequences of a failed disk."""
