"""Groups of the classic protocol: members vote, one of them assigns (JoinGroup, SyncGroup)."""
