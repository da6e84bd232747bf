"""One node of the quorum as a function; a module for each family of roles. Pure.

`raft_core.RaftCore.step(event, now_ms)` decides and returns effects. The core knows no clock, no
disk and no socket, so the simulator runs the very same code in virtual time.
"""
