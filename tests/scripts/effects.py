"""Carries out a core's effects at once in a script's world, and prints them as short lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from kvorum.raft.model.effects import (
    AppendFetched,
    AppendLeaderChange,
    AppendProposed,
    AppendVoters,
    DropSnapshots,
    Effect,
    FinishSnapshot,
    FlushLog,
    HighWatermarkAdvanced,
    LeaderChanged,
    PersistVoteState,
    QuorumAlert,
    ReplaceLog,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshot,
    SendRequest,
    TimelineEntry,
    TruncateLog,
    WriteSnapshotChunk,
)
from kvorum.raft.model.events import LogFlushed, SnapshotChunkWritten, SnapshotReceived
from kvorum.raft.model.messages import FetchResponse, FetchSnapshotResponse
from kvorum.runtime.errors import ErrorCode
from tests.scripts import describe
from tests.scripts.disk import Entry, span_of
from tests.scripts.network import Message

if TYPE_CHECKING:
    from tests.scripts.world import Node, World


def carry_out(world: World, node: Node, effect: Effect) -> None:
    """Do what the driver does, in the same order."""
    match effect:
        case PersistVoteState(state):
            node.disk.vote = state
            world.note_vote(node, state)
            world.detail(f"{node.id}: persist {describe.vote_state(state)}")
        case AppendProposed() | AppendLeaderChange() | AppendVoters() | AppendFetched():
            _append(world, node, effect)
        case TruncateLog(end_offset):
            node.disk.truncate(end_offset)
        case FlushLog(end_offset, generation):
            _flush(world, node, end_offset, generation)
        case SendRequest(receiver_id, correlation_id, request):
            node.outstanding[correlation_id] = receiver_id
            receiver = world.resolve(receiver_id)
            world.send(Message(node.id, receiver, request, correlation_id, node.life))
        case Reply(token, response):
            world.reply(node, token, response)
        case ReplyWithRecords():
            _reply_with_records(world, node, effect)
        case ReplyWithSnapshot():
            _reply_with_snapshot(world, node, effect)
        case WriteSnapshotChunk() | FinishSnapshot() | ReplaceLog() | DropSnapshots():
            _snapshot_effect(world, node, effect)
        case HighWatermarkAdvanced(high_watermark):
            world.note_committed(node, high_watermark)
            world.say(f"{node.id}: hw={high_watermark}")
        case LeaderChanged():
            pass  # a TimelineEntry tells the same
        case QuorumAlert(text):
            world.say(f"{node.id}: ALERT {describe.note(text)}")
        case TimelineEntry(text):
            world.say(f"{node.id}: {describe.note(text)}")
        case _:
            assert_never(effect)


def _append(
    world: World,
    node: Node,
    effect: AppendProposed | AppendLeaderChange | AppendVoters | AppendFetched,
) -> None:
    match effect:
        case AppendProposed():
            entries = [Entry(effect.epoch, value) for value in effect.batches]
        case AppendLeaderChange():
            is_alone = not effect.has_voter_set
            name = f"L{effect.leader_id}"
            entries = [Entry(effect.epoch, name, is_control=True, is_last=is_alone)]
            if effect.has_voter_set:
                voters = effect.voters
                entries += [
                    Entry(effect.epoch, "K1", is_control=True, is_last=False),
                    Entry(effect.epoch, f"V{describe.voters(voters)}", voters, is_control=True),
                ]
        case AppendVoters(_, epoch, voters):
            entries = [Entry(epoch, f"V{describe.voters(voters)}", voters, is_control=True)]
        case AppendFetched():
            entries = [entry for batch in effect.records for entry in batch]
    node.disk.append(effect.base_offset, entries)
    text = " ".join(describe.entry(entry) for entry in entries)
    world.say(f"{node.id}: append {effect.base_offset}: {text}")


def _flush(world: World, node: Node, end_offset: int, generation: int) -> None:
    if node.is_held:
        world.detail(f"{node.id}: flush to {end_offset} begins")
    else:
        node.disk.synced_end_offset = node.disk.end_offset
    world.disk_done(node, LogFlushed(end_offset, generation))


def _reply_with_records(world: World, node: Node, effect: ReplyWithRecords) -> None:
    batches = node.disk.batches(effect.fetch_offset, effect.end_offset, effect.bytes_max)
    spans = []
    offset = effect.fetch_offset
    for batch in batches:
        spans.append(span_of(offset, batch))
        offset += len(batch)
    response = FetchResponse(
        epoch=effect.epoch,
        leader_id=effect.leader_id,
        high_watermark=effect.high_watermark,
        spans=tuple(spans),
        records=tuple(batches),
    )
    world.reply(node, effect.token, response)


def _reply_with_snapshot(world: World, node: Node, effect: ReplyWithSnapshot) -> None:
    data = node.disk.snapshots.get(effect.snapshot)
    error = ErrorCode.NONE
    if data is None:
        error, data = ErrorCode.SNAPSHOT_NOT_FOUND, b""
    elif effect.position >= len(data):
        error = ErrorCode.POSITION_OUT_OF_RANGE
    response = FetchSnapshotResponse(
        epoch=effect.epoch,
        leader_id=effect.leader_id,
        error=error,
        position=effect.position,
        size=len(data),
        data=data[effect.position : effect.position + effect.bytes_max],
    )
    world.reply(node, effect.token, response)


def _snapshot_effect(
    world: World,
    node: Node,
    effect: WriteSnapshotChunk | FinishSnapshot | ReplaceLog | DropSnapshots,
) -> None:
    disk = node.disk
    match effect:
        case WriteSnapshotChunk(snapshot, position, data):
            end_position = disk.write_piece(snapshot, position, data)
            name = describe.snapshot(snapshot)
            world.say(f"{node.id}: piece {position}-{end_position} of snapshot {name}")
            world.disk_done(node, SnapshotChunkWritten(snapshot, end_position))
        case FinishSnapshot(snapshot):
            is_good, voters = disk.finish(snapshot)
            if not world.is_dynamic:
                voters = None
            world.disk_done(node, SnapshotReceived(snapshot, is_good, voters))
        case ReplaceLog(snapshot):
            disk.replace(snapshot)
        case DropSnapshots(snapshots, start_offset):
            disk.drop(snapshots, start_offset)
            gone = " ".join(describe.snapshot(s) for s in snapshots) or "nothing"
            world.say(f"{node.id}: drops {gone}, the log begins at {start_offset}")
