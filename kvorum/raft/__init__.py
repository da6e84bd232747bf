"""Consensus over opaque batches, after KRaft (KIP-595, KIP-996).

`core.RaftCore.step(event, now_ms)` decides and returns effects; `node` carries them out. The core
knows no clock, no disk and no socket, so the simulator runs the very same code in virtual time.
"""
