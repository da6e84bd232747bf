"""A replica's folder was removed from a stopped broker: in some cases the replica starts empty, in
others not, since the other replicas would truncate to its empty log."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.metadata.image.records import LOST_DIRECTORY, PartitionChange, RemoveTopic
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.several_directories import (
    QUIET,
    create_plain,
    damage,
    isr,
    leader,
    produce,
    told,
)


@pytest.fixture(params=[1, 2], ids=["one directory", "two directories"])
def harness(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Harness]:
    """Two brokers; partition 0 of t is led by broker 1, and holds three records."""
    harness = Harness(tmp_path, count=2, config=QUIET, directory_count=request.param)
    create_plain(harness)
    for _ in range(3):
        assert produce(harness) is KioError.none
    other = harness.cluster.replica(2, "t", 0)
    eventually(lambda: other.log.end_offset == 3, "the other has them")
    yield harness
    harness.close()


def folder_of(harness: Harness) -> Path:
    return Path(harness.cluster.replica(1, "t", 0).log.directory)


def stop(harness: Harness, *, fence: bool = True) -> None:
    harness.run(harness.cluster.stop_broker(1, fence=fence))


def start(harness: Harness, *, is_clean: bool = True) -> None:
    harness.run(harness.cluster.start_broker(1, is_clean=is_clean))


def is_open(harness: Harness) -> bool:
    return harness.cluster.brokers[1].manager.registry.find_by_name("t", 0) is not None


def stand_alone(harness: Harness) -> None:
    """Stop broker 2, so that broker 1 is alone in the ISR of partition 0."""
    harness.run(harness.cluster.stop_broker(2))
    assert isr(harness, 0) == (1,)


def test_the_only_one_in_sync_stays_offline_until_its_folder_is_back(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    stand_alone(harness)
    folder = folder_of(harness)
    stop(harness, fence=False)
    aside = folder.with_name("kept")
    folder.rename(aside)
    for is_clean in (True, False, True):
        caplog.clear()
        with caplog.at_level(logging.ERROR):
            start(harness, is_clean=is_clean)
        assert f"{folder} is gone, and held what is below offset 3" in caplog.text
        assert produce(harness) is KioError.kafka_storage_error
        eventually(lambda: told(harness, "t", 0) == LOST_DIRECTORY, "the controller knows")
        (broken,) = harness.cluster.brokers[1].manager.registry.broken
        assert broken.name == "t-0" and str(folder.parent) == broken.log_dir.path
        stop(harness, fence=False)
    aside.rename(folder)
    start(harness)
    assert harness.cluster.replica(1, "t", 0).log.end_offset == 3


def test_who_is_not_counted_on_begins_anew_and_fetches(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folder_of(harness)
    stop(harness)
    assert isr(harness, 0) == (2,)
    shutil.rmtree(folder)
    start(harness)
    assert "t-0 is gone, and held what is below offset 3; an empty log begins" in caplog.text
    eventually(lambda: set(isr(harness, 0)) == {1, 2}, "it is in sync again")
    assert harness.cluster.replica(1, "t", 0).log.end_offset == 3


# Two data directories: a single one has no id in this harness.
@pytest.mark.parametrize("harness", [2], indirect=True)
def test_one_of_two_in_sync_gives_up_its_place_and_then_begins_anew(harness: Harness) -> None:
    """The ISR still names the stopped broker, as if all brokers had died at once."""
    folder = folder_of(harness)
    stop(harness, fence=False)
    shutil.rmtree(folder)
    assert set(isr(harness, 0)) == {1, 2}
    start(harness)
    eventually(lambda: is_open(harness) and set(isr(harness, 0)) == {1, 2}, "it is in sync again")
    assert leader(harness, 0) == 2
    for broker_id in (1, 2):
        assert harness.cluster.replica(broker_id, "t", 0).log.end_offset == 3


def test_an_eligible_leader_is_counted_on(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folder_of(harness)
    stop(harness)
    topic_id = harness.cluster.controller.image.topic_ids["t"]
    harness.call(lambda: harness.cluster.controller.commit(PartitionChange(topic_id, 0, elr=(1,))))
    shutil.rmtree(folder)
    start(harness)
    # The replica stays offline until the controller knows that it is lost. Then it is no longer
    # eligible, and starts empty.
    said = [record.levelno for record in caplog.records if "t-0 is gone" in record.message]
    assert said[0] == logging.ERROR


def test_a_topic_made_anew_is_not_the_one_whose_folder_was_taken(harness: Harness) -> None:
    folder = folder_of(harness)
    stop(harness)
    shutil.rmtree(folder)
    delete(harness)
    create_plain(harness)
    start(harness)
    eventually(lambda: set(isr(harness, 0)) == {1, 2}, "it is in sync")


def test_a_later_topic_is_not_the_one_whose_folder_was_taken(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folder_of(harness)
    stop(harness)
    shutil.rmtree(folder)
    delete(harness)
    start(harness)
    create_plain(harness)
    eventually(lambda: set(isr(harness, 0)) == {1, 2}, "it is in sync")
    assert "is gone" not in caplog.text


def test_a_topic_deleted_before_a_crash_is_not_missed(harness: Harness) -> None:
    harness.run(harness.cluster.brokers[1].manager._background_jobs._flush_all())
    delete(harness)
    harness.run(harness.cluster.brokers[1].manager._background_jobs._remove_deleted())
    harness.run(harness.cluster.crash_broker(1))
    create_plain(harness)
    start(harness, is_clean=False)
    assert is_open(harness)


def delete(harness: Harness) -> None:
    topic_id = harness.cluster.controller.image.topic_ids["t"]
    harness.call(lambda: harness.cluster.controller.commit(RemoveTopic(topic_id)))


def test_a_damaged_replica_s_folder_goes_with_its_topic(harness: Harness) -> None:
    log = harness.cluster.replica(1, "t", 0).log
    harness.run(harness.cluster.crash_broker(1))
    harness.call(lambda: harness.cluster.fence(1))
    damage(log)
    start(harness, is_clean=False)
    assert not is_open(harness) and Path(log.directory).exists()
    delete(harness)
    assert not Path(log.directory).exists()
    create_plain(harness)
    eventually(lambda: is_open(harness), "the new topic of its name is open")
