"""All replicas of one broker: which there are, what runs on a timer, what a failed disk means."""
