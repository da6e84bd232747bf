"""Facts about the share coordinator: epochs, records, and what its log may lose."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvorum.broker.coordinator.model import (
    Append,
    Appended,
    Ask,
    Instant,
    ReplayedRecord,
    ShardAnswer,
    ShardRequest,
    TimerFired,
    TopicsChanged,
    TransactionEnd,
    TransactionEnded,
)
from kvorum.broker.share_state.batches import StateBatch
from kvorum.broker.share_state.records import (
    ShareKey,
    ShareState,
    decode_key,
    encode_snapshot,
    snapshot_key,
)
from kvorum.broker.share_state.requests import (
    DeleteState,
    InitializeState,
    Prune,
    ReadState,
    ReadSummary,
    WriteState,
)
from kvorum.broker.share_state.shard import ShareStateConfig, ShareStateShard
from kvorum.runtime.errors import ErrorCode, Rejected

TOPIC_ID = bytes(range(16))
KEY = ShareKey("g", TOPIC_ID, 0)
OTHER = ShareKey("g", TOPIC_ID, 1)
CONFIG = ShareStateConfig(
    share_coordinator_snapshot_update_records_per_snapshot=3,
    share_coordinator_cold_partition_snapshot_interval_ms=1_000,
)


class Host:
    """Appends what the shard wants, and keeps it for the next one."""

    def __init__(self):
        self.log: list[tuple[bytes, bytes | None]] = []
        self.shard = ShareStateShard(CONFIG)
        self.now_ms = 0
        self.asked: list[Prune] = []

    def ask(self, body):
        """The answer, or the code of a refusal."""
        found = self._carry_out(self.shard.step(ShardRequest(token=1, body=body), self.now))
        return found.code if isinstance(found, Rejected) else found

    @property
    def now(self):
        return Instant(self.now_ms, 10_000 + self.now_ms)

    def give(self, event):
        return self._carry_out(self.shard.step(event, self.now))

    def _carry_out(self, effects):
        answer = None
        for effect in effects:
            if isinstance(effect, Append):
                base = len(self.log)
                self.log.extend(effect.records)
                if effect.tag is not None:
                    self.give(Appended(tag=effect.tag, base_offset=base))
            elif isinstance(effect, ShardAnswer):
                answer = effect.response
            elif isinstance(effect, Ask):
                self.asked.append(effect.question)
        return answer

    def loaded(self, start=0):
        """A shard that has read the log from `start`."""
        shard = ShareStateShard(CONFIG)
        for offset, (key, value) in enumerate(self.log):
            if offset >= start:
                record = ReplayedRecord(offset, 10_000 + self.now_ms, key, value, -1, -1, False)
                shard.replay(record)
        return shard

    def kinds(self):
        """s: a snapshot, u: an update, x: a tombstone."""
        found = ""
        for key, value in self.log:
            decoded = decode_key(key)
            assert decoded is not None
            found += "x" if value is None else "s" if decoded[0] else "u"
        return found


def write(key=KEY, *batches, start=-1, state_epoch=1, leader_epoch=1, complete=0):
    return WriteState(
        key=key,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start,
        delivery_complete_count=complete,
        batches=tuple(StateBatch(*batch) for batch in batches),
    )


def begun(key=KEY):
    host = Host()
    assert host.ask(InitializeState(key=key, state_epoch=1)) == ErrorCode.NONE
    return host


def test_a_state_is_initialized_written_and_read():
    host = begun()
    assert host.ask(ReadState(key=KEY, leader_epoch=1)).start_offset == -1
    assert host.ask(write(KEY, (3, 4, 2, 1), start=0, complete=2)) == ErrorCode.NONE
    found = host.ask(ReadState(key=KEY, leader_epoch=1))
    assert (found.start_offset, found.batches) == (0, (StateBatch(3, 4, 2, 1),))
    assert found.delivery_complete_count == 2
    assert host.loaded().states == host.shard.states


def test_a_state_that_was_not_initialized_is_refused():
    host = Host()
    assert host.ask(ReadState(key=KEY, leader_epoch=1)) == ErrorCode.INVALID_REQUEST
    assert host.ask(write()) == ErrorCode.INVALID_REQUEST
    assert host.ask(ReadSummary(key=KEY)) is None
    assert host.ask(DeleteState(key=KEY)) == ErrorCode.NONE
    assert host.log == []


def test_a_leader_of_an_older_epoch_is_fenced_once_a_newer_one_has_read():
    host = begun()
    host.ask(ReadState(key=KEY, leader_epoch=5))
    assert host.ask(write(leader_epoch=4)) == ErrorCode.FENCED_LEADER_EPOCH
    assert host.ask(ReadState(key=KEY, leader_epoch=4)) == ErrorCode.FENCED_LEADER_EPOCH
    assert host.ask(ReadSummary(key=KEY, leader_epoch=4)) == ErrorCode.FENCED_LEADER_EPOCH
    assert host.ask(write(leader_epoch=5)) == ErrorCode.NONE
    # Another shard knows it too.
    assert host.loaded().states[KEY].leader_epoch == 5


def test_a_leader_that_holds_an_older_state_is_fenced():
    host = begun()
    assert host.ask(InitializeState(key=KEY, state_epoch=7, start_offset=40)) == ErrorCode.NONE
    assert host.ask(write(state_epoch=1)) == ErrorCode.FENCED_STATE_EPOCH
    assert host.ask(InitializeState(key=KEY, state_epoch=6)) == ErrorCode.FENCED_STATE_EPOCH
    assert host.ask(ReadState(key=KEY, leader_epoch=1)).start_offset == 40


def test_an_initialisation_that_is_sent_twice_changes_nothing():
    host = begun()
    host.ask(write(KEY, (0, 4, 2, 1), start=0))
    assert host.ask(InitializeState(key=KEY, state_epoch=1)) == ErrorCode.NONE
    assert host.ask(ReadState(key=KEY, leader_epoch=1)).batches == (StateBatch(0, 4, 2, 1),)


def test_what_no_leader_writes_is_refused_and_not_kept():
    host = begun()
    for batches in [((5, 4, 0, 1),), ((0, 4, 1, 1),), ((0, 4, 2, 1), (4, 5, 2, 1))]:
        assert host.ask(write(KEY, *batches)) == ErrorCode.INVALID_REQUEST
    assert host.kinds() == "s"


def test_after_many_updates_the_whole_state_is_written():
    host = begun()
    for offset in range(6):
        host.ask(write(KEY, (offset, offset, 2, 1), start=0))
    assert host.kinds() == "suusuus"
    assert host.loaded(start=3).states == host.shard.states
    assert host.loaded(start=6).states == host.shard.states


def test_the_log_starts_at_the_oldest_snapshot_that_a_loader_needs():
    host = begun()
    host.ask(InitializeState(key=OTHER, state_epoch=1))
    for offset in range(3):
        host.ask(write(KEY, (offset, offset, 2, 1), start=0))
    host.give(TimerFired(name="prune"))
    assert host.asked == [Prune(offset=1)]  # the other one has its only snapshot there
    host.asked.clear()
    for offset in range(3):
        host.ask(write(OTHER, (offset, offset, 2, 1), start=0))
    host.give(TimerFired(name="prune"))
    assert host.asked == [Prune(offset=4)]
    assert host.loaded(start=4).states == host.shard.states
    host.give(TimerFired(name="prune"))
    assert host.asked == [Prune(offset=4)]


def test_a_share_partition_that_rests_gets_a_snapshot():
    host = begun()
    host.ask(write(KEY, (0, 0, 2, 1), start=0))
    host.now_ms = 500
    host.give(TimerFired(name="cold"))
    assert host.kinds() == "su"
    host.now_ms = 1_500
    host.give(TimerFired(name="cold"))
    assert host.kinds() == "sus"
    host.give(TimerFired(name="cold"))
    assert host.kinds() == "sus"


def test_a_deleted_state_is_gone_also_for_the_next_shard():
    host = begun()
    host.ask(write(KEY, (0, 0, 2, 1), start=0))
    assert host.ask(DeleteState(key=KEY)) == ErrorCode.NONE
    assert host.kinds() == "sux"
    assert host.loaded().states == {}


class Image:
    def __init__(self, *topic_ids):
        self.topics = dict.fromkeys(topic_ids)


def test_the_states_of_a_deleted_topic_end_and_those_of_an_unknown_one_stay():
    host = begun()
    changed = frozenset({"t"})
    host.give(TopicsChanged(image=Image(), changed=changed, deleted=frozenset()))
    assert KEY in host.shard.states  # the image may lag behind the log
    host.give(TopicsChanged(image=Image(TOPIC_ID), changed=changed, deleted=frozenset()))
    host.give(TopicsChanged(image=Image(), changed=changed, deleted=changed))
    assert host.shard.states == {}
    assert host.kinds() == "sx"


@given(
    st.lists(
        st.tuples(st.sampled_from([KEY, OTHER]), st.integers(0, 9), st.sampled_from([0, 2, 4])),
        max_size=20,
    )
)
def test_every_loader_finds_the_state_of_the_shard_before_it(writes):
    host = begun()
    host.ask(InitializeState(key=OTHER, state_epoch=1))
    for key, offset, state in writes:
        host.ask(write(key, (offset, offset + 1, state, 1), start=0))
    assert host.loaded().states == host.shard.states


def test_records_are_kafkas():
    # As kafka-dump-log of Apache Kafka 4.4 reads them.
    assert snapshot_key(ShareKey("g", TOPIC_ID, 7)).hex() == (
        "0000" "0001" "67" + TOPIC_ID.hex() + "00000007"
    )  # fmt: skip
    state = ShareState(
        snapshot_epoch=1,
        state_epoch=2,
        leader_epoch=3,
        start_offset=4,
        delivery_complete_count=5,
        create_timestamp_ms=6,
        write_timestamp_ms=7,
        batches=(StateBatch(8, 9, 2, 1),),
    )
    assert encode_snapshot(state).hex() == (
        "0000" "00000001" "00000002" "00000003" "0000000000000004"
        "0000000000000006" "0000000000000007"
        "02" "0000000000000008" "0000000000000009" "02" "0001" "00"
        "01" "00" "04" "00000005"
    )  # fmt: skip


def test_a_marker_of_a_transaction_changes_nothing():
    host = Host()
    end = TransactionEnd(producer_id=7, producer_epoch=0, is_commit=True)
    host.shard.replay_end(end)
    assert host.give(TransactionEnded(end=end)) is None
    assert host.log == []
