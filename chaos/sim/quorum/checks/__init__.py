"""The checks of the quorum, which judge facts about its nodes."""
