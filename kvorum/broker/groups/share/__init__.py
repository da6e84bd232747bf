"""Share groups (KIP-932): the coordinator assigns partitions, which members share."""
