"""`kvorum dev`: a cluster on this machine, its supervisor and how others control it."""
