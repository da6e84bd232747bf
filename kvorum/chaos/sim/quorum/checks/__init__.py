"""The checks of the quorum, over facts about its nodes."""
