"""Share groups (KIP-932): the records that members of a group hold at the leader of a partition."""
