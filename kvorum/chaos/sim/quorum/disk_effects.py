"""Carries out effects on a simulated node's log and snapshots, as `RaftNode` does."""

from __future__ import annotations

from typing import Any, assert_never

from kvorum.chaos.sim.kernel.async_disk import SimTask
from kvorum.chaos.sim.quorum.model.mirror import LogEffect, Mirror
from kvorum.chaos.sim.quorum.process import SimProcess
from kvorum.raft.model.effects import (
    AppendVoters,
    DropSnapshots,
    FinishSnapshot,
    ReplaceLog,
    ReplyWithSnapshot,
    TruncateLog,
    WriteSnapshotChunk,
)
from kvorum.raft.model.events import Event, SnapshotReceived
from kvorum.raft.model.messages import FetchSnapshotResponse
from kvorum.runtime.errors import required

SnapshotEffect = (
    ReplyWithSnapshot | WriteSnapshotChunk | FinishSnapshot | ReplaceLog | DropSnapshots
)


def carry_out_log_effect(node: SimProcess, effect: LogEffect) -> None:
    """Apply the effect to the node's log at once. Raises OSError, PowerCut."""
    checks = node.world.checks
    if isinstance(effect, TruncateLog):
        # The node no longer vouches for the truncated records, even if the truncation fails.
        node.durable_end_offset = min(node.durable_end_offset, effect.end_offset)
    if isinstance(effect, AppendVoters):
        checks.on_changing_voters(node, effect)
    node.replica_log.carry_out(effect, wall_ms=node.local_ms)
    node.mirror.carry_out(effect)
    checks.on_log_changed(node)


def carry_out_snapshot_effect(node: SimProcess, effect: SnapshotEffect) -> None:
    """Begin the effect; disk work continues in the background. Raises OSError, PowerCut."""
    world = node.world
    match effect:
        case ReplyWithSnapshot(token):

            def reply(task: SimTask[FetchSnapshotResponse]) -> None:
                if _is_well(node, task):
                    world.transport.reply(node.node_id, token, required(task.result, "it was read"))

            node.worker.beside(node.files.read(effect), reply)
        case WriteSnapshotChunk():
            world.snapshot_checks.on_piece(node, effect)
            node.worker.queue(node.files.write_chunk(effect), _deliver_to(node))
        case FinishSnapshot():
            node.worker.queue(node.files.finish(effect), _deliver_to(node))
        case ReplaceLog(snapshot):
            state, voters = world.snapshot_checks.on_replacing(node, snapshot)
            # From here on a restart must recover this snapshot, even if the replacement of the log
            # is incomplete.
            node.mirror = Mirror(base=state, voters=voters)
            node.durable_end_offset = snapshot.offset
            node.replica_log.carry_out(effect, wall_ms=node.local_ms)
            node.worker.queue(node.files.remove_older(snapshot), _after(node))
            node.machine.load(snapshot)
            world.checks.on_log_changed(node)
        case DropSnapshots():
            node.worker.queue(_drop_snapshots(node, effect), _after(node, effect))
        case _:
            assert_never(effect)


async def _drop_snapshots(node: SimProcess, effect: DropSnapshots) -> None:
    await node.files.remove(effect.snapshots)
    node.replica_log.trim(effect.start_offset, wall_ms=node.local_ms)


def _deliver_to(node: SimProcess) -> Any:
    def deliver(task: SimTask[Event]) -> None:
        if not _is_well(node, task) or task.result is None:
            return
        event = task.result
        if isinstance(event, SnapshotReceived) and event.is_good:
            node.world.snapshot_checks.on_snapshot(node, event.snapshot)
        node.deliver(event)

    return deliver


def _after(node: SimProcess, effect: DropSnapshots | None = None) -> Any:
    def check_folder(task: SimTask[None]) -> None:
        if _is_well(node, task):
            node.world.snapshot_checks.on_folder_changed(node, effect)

    return check_folder


def _is_well(node: SimProcess, task: SimTask[Any]) -> bool:
    """True if the task succeeded. A failed disk ends the process, any other error ends the run."""
    if isinstance(task.error, OSError):
        node.die(task.error)
        return False
    if task.error is not None:
        raise task.error
    return True
