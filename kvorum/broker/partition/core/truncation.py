"""The offset at which a follower cuts its log when its history and its leader's diverge (KIP-101,
KIP-279).

Pure: the driver, `Replica.truncate_for`, reads the log and cuts it.
"""

from __future__ import annotations

from kvorum.storage.files.leader_epochs import LeaderEpochCache


def is_of_another_history(epochs: LeaderEpochCache, last_epoch: int) -> bool:
    """True if an empty log has an epoch that diverged below its start, so that it must start anew.

    last_epoch: of the log, also of what lies below its start.

    The records below the start are of another history. Bad sequence (seed 271406): 1. The leader's
    records are appended behind them in the same file. 2. After a crash, recovery refuses that file;
    or power failed, the log start is lost, and the records of the other history are back.
    """
    return epochs.latest_epoch < 0 and last_epoch >= 0


def truncation_offset(
    diverging: tuple[int, int], epochs: LeaderEpochCache, *, start_offset: int, end_offset: int
) -> int:
    """The offset to cut a log at, from its start_offset to its end_offset.

    diverging: the leader's epoch, and the end of that epoch in the leader's log.

    If this log does not have the leader's epoch, the end of its own largest epoch below counts; the
    next fetch then asks again from there.
    """
    epoch, leader_end = diverging
    local_epoch, local_end = epochs.end_offset_for(epoch, end_offset)
    if local_epoch == -1:
        # All epochs of this log are older than the leader's, so all of its records count; or it
        # knows no epoch at all.
        local_end = end_offset
    return max(min(leader_end, local_end), start_offset)
