"""Ways back: a damaged replica, a quorum that lost its majority."""
