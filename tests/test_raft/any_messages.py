"""Any message between nodes of the quorum, for hypothesis, and its way over the wire."""

import typing

from hypothesis import strategies as st

from kvorum.raft.model import messages as m
from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.raft.model.voters import Voter, VoterSet
from kvorum.raft.node import codec
from kvorum.raft.node.control_records import voters_batch
from kvorum.raft.node.replica_log import spans_of
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import build_batch
from tests.test_raft.driver import voter_set

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
uuids = st.binary(min_size=16, max_size=16)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
addresses = st.tuples(texts, st.integers(0, 65535))
voters = st.builds(Voter, int32, uuids, texts, st.integers(0, 65535))
voter_sets = st.lists(voters, max_size=4, unique_by=lambda one: one.node_id).map(VoterSet.of)
positions = st.builds(OffsetAndEpoch, int64, int32)
record_batches = st.sampled_from(
    [
        b"",
        bytes(build_batch([(None, b"a")] * 2, base_offset=4, leader_epoch=2, timestamp_ms=0)),
        bytes(voters_batch(voter_set(1, 2), base_offset=9, epoch=3, timestamp_ms=1)),
    ]
)

FIELDS = {
    "cluster_id": texts,
    "epoch": st.integers(-(1 << 31), codec.EPOCH_MAX),
    "leader_id": int32,
    "candidate_id": int32,
    "voter_id": int32,
    "node_id": int32,
    "replica_id": int32,
    "last_epoch": int32,
    "last_fetched_epoch": int32,
    "end_offset": int64,
    "fetch_offset": int64,
    "high_watermark": int64,
    "position": st.integers(0, (1 << 63) - 1),
    "size": st.integers(0, (1 << 63) - 1),
    "bytes_max": st.integers(0, (1 << 31) - 1),
    "is_pre_vote": st.booleans(),
    "is_granted": st.booleans(),
    "is_dry_run": st.booleans(),
    "is_answered_early": st.booleans(),
    "directory_id": uuids,
    "candidate_directory_id": uuids,
    "voter_directory_id": uuids,
    "replica_directory_id": uuids,
    "preferred_successors": st.lists(int32, max_size=4).map(tuple),
    "address": st.none() | addresses,
    "snapshot": positions,
    "diverging": st.none() | positions,
    "error": st.sampled_from(ErrorCode),
    "reason": texts,
    "message": texts,
    "voter": voters,
    "voters": voter_sets,
    "data": st.binary(max_size=40),
}

REQUESTS = typing.get_args(m.Request)
RESPONSES = typing.get_args(m.Response)


def messages_of(kind):
    """Any message of a kind. A message's own field must not be missing in FIELDS."""
    names = [name for name in kind.__dataclass_fields__ if name not in ("records", "spans")]
    fields = {name: FIELDS[name] for name in names}
    if kind is not m.FetchResponse:
        return st.builds(kind, **fields)
    fields["snapshot"] = st.none() | positions
    return st.builds(
        lambda records, **more: m.FetchResponse(records=records, spans=spans_of(records), **more),
        record_batches,
        **fields,
    )


def over_the_wire(message):
    encode = codec.encode_request if isinstance(message, REQUESTS) else codec.encode_response
    encoded = encode(message)
    return codec.decode(type(encoded).FromString(encoded.SerializeToString()))
