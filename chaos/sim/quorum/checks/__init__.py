"""What must hold in the quorum, judged from facts about its nodes."""
