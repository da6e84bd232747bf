"""Groups of the classic protocol: members vote for an assignor, the group's leader assigns
(JoinGroup, SyncGroup)."""
