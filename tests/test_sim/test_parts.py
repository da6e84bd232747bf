"""The simulator's parts: clocks, time, mirrors of logs, schedules as data, the decaying disk."""

from __future__ import annotations

import json
import random

import pytest

from kvorum.chaos.sim.kernel import schedule as schedules
from kvorum.chaos.sim.kernel.async_disk import run_now
from kvorum.chaos.sim.kernel.checks import CheckFailed
from kvorum.chaos.sim.kernel.clock import Alarm, LocalClock
from kvorum.chaos.sim.kernel.fault_draws import DRAWS
from kvorum.chaos.sim.kernel.timeline import SimTimeline
from kvorum.chaos.sim.quorum import scenario
from kvorum.chaos.sim.quorum.decay import Damage, examine, flip_byte
from kvorum.chaos.sim.quorum.model.mirror import Mirror
from kvorum.chaos.sim.quorum.model.recovery import (
    DIRECTORY,
    DiskSettings,
    empty_disk,
    format_voters,
    open_node,
)
from kvorum.chaos.sim.quorum.model.state import ListState, keys_of_set, voters_value
from kvorum.raft.model.values import VoteState
from kvorum.raft.model.voters import Voter, VoterSet
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.ids import UUID_ZERO
from kvorum.runtime.memory_disk import MemoryDisk, PowerCut
from kvorum.snapshots.format import SnapshotHeader
from kvorum.storage.format.batch import build_batch

SETTINGS = DiskSettings(static_voters=frozenset({(1, UUID_ZERO)}))

# Time.


def test_calls_happen_in_order_of_time_and_then_of_asking():
    timeline, seen = SimTimeline(), []
    for name, delay_ms in (("c", 5), ("a", 0), ("d", 5), ("b", 3), ("late", 6)):
        timeline.after(delay_ms, lambda name=name: seen.append((timeline.now_ms, name)))
    timeline.run_until(5)
    assert seen == [(0, "a"), (3, "b"), (5, "c"), (5, "d")]
    assert (timeline.now_ms, timeline.events) == (5, 4)


def test_time_that_stands_still_for_ever_is_a_failure(monkeypatch):
    monkeypatch.setattr("kvorum.chaos.sim.kernel.timeline.EVENTS_MAX", 100)
    timeline = SimTimeline()

    def again():
        timeline.after(0, again)

    again()
    with pytest.raises(CheckFailed, match="Progress"):
        timeline.run_until(1)


@pytest.mark.parametrize("rate", [950, 1000, 1049])
def test_alarm_rings_at_the_first_moment_the_clock_shows_the_time(rate):
    timeline, rung = SimTimeline(), []
    clock = LocalClock(now_ms=0, local_ms=700, rate=rate)
    alarm = Alarm(timeline, clock, lambda: rung.append(timeline.now_ms))
    alarm.set(1_700)
    alarm.set(5_000)  # later than the one before, which stays
    timeline.run_until(10_000)
    assert len(rung) == 1
    assert clock.local_ms(rung[0]) >= 1_700 > clock.local_ms(rung[0] - 1)


def test_clock_never_goes_back_when_it_changes_and_a_cancelled_alarm_is_silent():
    timeline = SimTimeline()
    clock = LocalClock(now_ms=0, local_ms=0, rate=1050)
    assert clock.local_ms(1_000) == 1_050
    clock.change(1_000, jump_ms=10, rate=950)
    assert clock.local_ms(1_000) == 1_060
    assert clock.local_ms(2_000) == 2_010
    assert clock.delay_ms(5, 1_000) == 0
    alarm = Alarm(timeline, clock, lambda: pytest.fail("rang"))
    alarm.set(50)
    alarm.cancel()
    timeline.run_until(1_000)


# Mirrors.


def test_mirror_knows_its_prefixes_over_truncation():
    mirror = Mirror([(1, b"va"), (1, b""), (2, b"vb"), (2, b"vc")])
    other = Mirror([(1, b"va"), (1, b""), (3, b"vb")])
    assert mirror.digest_at(2) == other.digest_at(2)
    assert mirror.digest_at(3) != other.digest_at(3)
    assert (mirror.digest_at(5), mirror.entry(4), mirror.entry(3)) == (None, None, (2, b"vc"))
    assert mirror.state() == (3, b"vc")
    assert mirror.differs_at(other) == 2
    mirror.truncate(2)
    mirror.append(3, b"vb")
    assert mirror.digest_at(3) == other.digest_at(3)
    assert mirror.epochs == other.epochs == [(1, 0), (3, 2)]
    assert mirror.state() == (2, b"vb")
    mirror.truncate(0)
    assert (mirror.state(), mirror.end_offset, mirror.epochs) == ((0, b""), 0, [])


def test_agreed_end_is_what_a_walk_over_both_logs_finds():
    rng = random.Random(2)
    for _ in range(300):
        logs = [Mirror(), Mirror()]
        for log in logs:
            epoch = 0
            for _ in range(rng.randint(0, 8)):
                epoch += rng.choice((0, 0, 1, 2))
                log.append(epoch, b"v")
        end = min(log.end_offset for log in logs)
        while end and logs[0].entry(end - 1)[0] != logs[1].entry(end - 1)[0]:
            end -= 1
        assert logs[0].agreed_end(logs[1]) == logs[1].agreed_end(logs[0]) == end


def test_mirror_behind_a_snapshot_knows_the_digest_of_what_is_gone():
    entries = [(1, b"va"), (1, b"vb"), (2, b"vc"), (2, b"")]
    whole = Mirror(entries)
    state = ListState().after(entries[:2])
    assert (state.end_offset, state.epoch, state.digest) == (2, 1, whole.digest_at(2))
    bare = Mirror(base=state)
    assert bare.state() == (2, b"vb")
    assert bare.agreed_end(whole) == 2 and bare.agreed_end(Mirror(entries[:1])) == 0
    rest = Mirror(entries[2:], base=state)
    assert rest.digest_at(4) == whole.digest_at(4)
    assert (rest.digest_at(1), rest.entry(1), rest.entry(2)) == (None, None, (2, b"vc"))
    assert (rest.state(), rest.agreed_end(whole), whole.agreed_end(rest)) == ((3, b"vc"), 4, 4)
    assert rest.agreed_end(Mirror([(1, b"va"), (1, b"vb"), (3, b"")])) == 2
    rest.truncate(2)
    assert (rest.state(), rest.end_offset, rest.epochs) == ((2, b"vb"), 2, [(1, 1)])


def test_mirror_reads_who_votes_from_its_records():
    one, two = (VoterSet.of(Voter(i, bytes(15) + b"%d" % i, "h", 1) for i in ids) for ids in (
        (1, 2), (1, 2, 3))
    )  # fmt: skip
    first, second = keys_of_set(one), keys_of_set(two)
    mirror = Mirror([(1, b""), (1, voters_value(two)), (1, b"va")], voters=first)
    assert mirror.voters == second == mirror.voters_at(2)
    assert mirror.voters_at(1) == first
    mirror.truncate(1)
    assert mirror.voters == first
    moved = VoterSet.of([*one.voters[:1], Voter(2, one.voters[1].directory_id, "h", 2)])
    assert keys_of_set(moved) == first and voters_value(moved) != voters_value(one)


# Schedules.


@pytest.mark.parametrize("kind", DRAWS)
def test_every_kind_of_fault_survives_json(kind):
    schedule = schedules.draw_schedule(
        random.Random(1), node_ids=(1, 2, 3), kinds=[kind], duration_ms=5_000, interval_ms=100
    )
    assert schedule and {item.kind for item in schedule} == {kind}
    assert all(0 < item.at_ms < 5_000 for item in schedule)
    for item in schedule:
        text = json.dumps(schedules.to_json(item))
        assert schedules.from_json(json.loads(text)) == item


@pytest.mark.parametrize("seed", range(5))
def test_scenario_survives_json(seed):
    drawn = scenario.scenario_of(seed)
    assert scenario.from_json(scenario.to_json(drawn)) == drawn
    assert "\n" not in scenario.to_json(drawn)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "not a scenario"),
        ("[]", "not a scenario"),
        ('{"voters": 3}', "seed"),
        ('{"seed": 1, "colour": 2}', "colour"),
        ('{"seed": 1, "voters": 0}', "1 to 9 voters"),
        ('{"seed": 1, "candidates": 1}', "need dynamic voters"),
        ('{"seed": 1, "faults": [{"at_ms": 1, "kind": "flood"}]}', "flood"),
        ('{"seed": 1, "faults": [{"at_ms": 1, "kind": "pause", "node": 1}]}', "not a fault"),
        (
            '{"seed": 1, "faults": [{"at_ms": 1, "kind": "pause", "target": "node-1"}]}',
            "needs duration_ms",
        ),
    ],
)
def test_what_is_no_scenario_is_refused_by_name(text, match):
    with pytest.raises(ConfigError, match=match):
        scenario.from_json(text)


# Disks.


def disk_with(content=b"synced", unsynced=b""):
    disk = MemoryDisk(random.Random(0))
    disk.make_dirs("/a")
    disk.sync_dir("/")
    file = disk.open("/a/file")
    file.pwrite(content, 0)
    file.sync()
    disk.sync_dir("/a")
    if unsynced:
        file.pwrite(unsynced, len(content))
    return disk, file


def test_killed_process_loses_its_files_and_no_byte():
    disk, file = disk_with(unsynced=b" and not")
    disk.kill_process()
    with pytest.raises(OSError, match="file is closed"):
        file.size()
    assert disk.read_bytes("/a/file") == b"synced and not"


def test_saved_disk_comes_back_as_it_was_durable():
    disk, _ = disk_with(unsynced=b" and not")
    saved = disk.save()
    disk.flip_bits("/a/file", 0)
    disk.write_atomic("/a/other", b"x")
    disk.restore(saved)
    assert disk.read_bytes("/a/file") == b"synced"
    assert disk.list_dir("/a") == ["file"]
    disk.crash()
    assert disk.read_bytes("/a/file") == b"synced"


def test_calm_disk_forgets_every_fault():
    disk, file = disk_with()
    disk.fail("sync")
    disk.cut_power_after(0)
    disk.capacity_bytes = 1
    with pytest.raises(OSError, match="injected fault"):
        file.sync()
    with pytest.raises(PowerCut):
        file.sync()
    disk.calm()
    file.pwrite(b"more", 6)
    file.sync()


def log_of(batches, values_in_batch=3, *, snapshots=()):
    """A disk with a log of that many batches, all of it fsynced, and its mirror.

    snapshots: numbers of batches after which one is taken; nothing is trimmed.
    """
    disk = empty_disk(random.Random(0))
    metadata = open_node(disk, SETTINGS, now_ms=0).metadata
    log, files = metadata.replica_log.log, metadata.files
    metadata.replica_log.vote_store.save(VoteState(1))
    state = ListState()
    for number in range(1, batches + 1):
        values = [(None, b"v%d" % number)] * values_in_batch
        batch = build_batch(values, timestamp_ms=0)
        log.append_as_leader(batch, leader_epoch=1, now_ms=0)
        state = state.after((1, value) for _, value in values)
        if number in snapshots:
            header = SnapshotHeader(end_offset=state.end_offset, epoch=1, timestamp_ms=0)
            run_now(files.take(header, state.payloads()))
    log.flush()
    disk.kill_process()
    return disk, open_node(disk, SETTINGS, now_ms=0).mirror


def damage_at(draw, mask, *, batches=60, snapshots=()):
    disk, durable = log_of(batches, snapshots=snapshots)
    flipped = flip_byte(disk, DIRECTORY, draw=draw, mask=mask)
    return flipped, examine(
        disk, DIRECTORY, SETTINGS, flipped=flipped, durable=durable,
        durable_end_offset=durable.end_offset, now_ms=0,
    )  # fmt: skip


def test_flipped_bits_are_refused_or_cut_and_never_served():
    rng = random.Random(5)
    seen = set()
    for _ in range(60):
        flipped, damage = damage_at(rng.randrange(1 << 30), 1 << rng.randrange(8))
        assert (damage is Damage.CUT) <= (flipped.end_offset == 180)
        seen.add(damage)
    assert damage_at(-1, 1)[1] is Damage.CUT  # the last byte of all looks like a torn write
    assert Damage.REFUSED in seen and Damage.HARMLESS not in seen


def test_recovery_without_checksums_is_caught(monkeypatch):
    monkeypatch.setattr("kvorum.storage.format.batch_check.crc32c", lambda _: AnyCrc())
    with pytest.raises(CheckFailed, match=r"DamageDetected: .* serves damaged records"):
        damage_at(56, 1)  # a byte of the first value


def test_recovery_that_cuts_whatever_is_damaged_is_caught(monkeypatch):
    monkeypatch.setattr("kvorum.storage.recovery.batch_walk._refuse_unless_torn", lambda *_: None)
    with pytest.raises(CheckFailed, match=r"DamageDetected: .* good ones follow"):
        damage_at(-400, 1)


def test_empty_disk_has_nothing_to_damage():
    assert flip_byte(MemoryDisk(random.Random(0)), DIRECTORY, draw=7, mask=1) is None


def test_flipped_bits_of_a_snapshot_are_named_and_an_older_one_serves():
    for back in range(1, 150, 7):
        flipped, damage = damage_at(-back, 2, batches=6, snapshots=(2, 4))
        assert flipped.path.endswith(".checkpoint") and damage is Damage.HARMLESS


def test_recovery_that_takes_a_damaged_snapshot_is_caught(monkeypatch):
    monkeypatch.setattr("kvorum.snapshots.format.crc32c", lambda *_: AnyCrc())
    with pytest.raises(CheckFailed, match=r"DamageDetected: .* takes the damaged snapshot"):
        damage_at(-30, 1, batches=6, snapshots=(2,))


# Recovery.


def test_start_reads_log_state_and_voters_back():
    disk, mirror = log_of(6, snapshots=(2, 4))
    opened = open_node(disk, SETTINGS, now_ms=0)
    assert (mirror.start_offset, mirror.end_offset, opened.state.end_offset) == (6, 18, 12)
    assert mirror.digest_at(12) == opened.state.digest
    assert opened.mirror.voters == SETTINGS.static_voters


def test_formatted_disk_names_the_first_voters_and_an_empty_one_nobody():
    voters = VoterSet.of(Voter(i, bytes(15) + b"x", f"host{i}", 9000) for i in (1, 2))
    disk = empty_disk(random.Random(0))
    assert open_node(disk, DiskSettings(), now_ms=0).mirror.voters == frozenset()
    format_voters(disk, voters)
    disk.crash()
    opened = open_node(disk, DiskSettings(), now_ms=0)
    assert opened.mirror.voters == keys_of_set(voters)
    assert opened.metadata.was_dynamic


class AnyCrc(int):
    """Equal to every checksum."""

    def __eq__(self, _):
        return True

    def __ne__(self, _):
        return False

    __hash__ = int.__hash__
