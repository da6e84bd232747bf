"""A data directory of a real broker fails under load; a damaged replica is fetched again from its
leader.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.by_hand import HandMade
from tests.live.clients import Load, Topics, assert_nothing_lost
from tests.live.cluster import run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

NAMES = ("broker-101", "broker-102", "broker-103")
ALL = {101, 102, 103}
PARTITIONS = 6


@pytest.fixture
def made(tmp_path: Path) -> Iterator[HandMade]:
    """Three brokers; broker 101 has two data directories."""
    made = HandMade(
        tmp_path,
        controllers=1,
        brokers=3,
        settings=("replica.high.watermark.checkpoint.interval.ms=200",),
    )
    try:
        first = made.data("broker-101")
        made.change("broker-101", log_dirs=f"{first},{first}-b")
        made.start("controller-1", *NAMES)
        eventually(lambda: len(brokers(made)) == 3, "three brokers serve")
        yield made
    finally:
        made.close()


def ask(made: HandMade, *arguments: str) -> Any:
    done = run_kvorum(*arguments, "-b", bootstrap(made), "-o", "json")
    return json.loads(done.stdout) if done.stdout else []


def bootstrap(made: HandMade) -> str:
    """Brokers 102 and 103, whose disks stay sound."""
    return ",".join(made.address(name) for name in NAMES[1:])


def brokers(made: HandMade) -> list[Any]:
    return [row for row in ask(made, "brokers", "list") if not row["is_fenced"]]


def partitions(made: HandMade, topic: str = "t") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(made, "topics", "describe", topic)[0]["partitions"]
    return found


def directories(made: HandMade) -> tuple[Path, Path]:
    first, second = str(made.properties("broker-101")["log.dirs"]).split(",")
    return Path(first), Path(second)


def held_in(directory: Path, topic: str = "t") -> set[int]:
    """Partitions of which 101 has a folder in that directory."""
    return {n for n in range(PARTITIONS) if (directory / f"{topic}-{n}").is_dir()}


def in_sync(made: HandMade, ids: set[int]) -> set[int]:
    """Partitions whose ISR is this."""
    return {p["partition"] for p in partitions(made) if set(p["isr"]) == ids}


def errors_of(made: HandMade, name: str) -> str:
    return (made.folder / f"{name}.err").read_text()


def test_a_directory_fails_under_load_and_the_other_one_goes_on(made: HandMade) -> None:
    topics = Topics(bootstrap(made))
    topics.create("t", PARTITIONS, min_insync_replicas=2)
    load = Load(bootstrap(made), "t", PARTITIONS)
    load.wait_more()
    kept, lost = directories(made)
    eventually(lambda: len(held_in(kept) | held_in(lost)) == PARTITIONS, "all are written to")
    gone = held_in(lost)
    assert len(gone) == PARTITIONS // 2
    aside = lost.with_name("aside")
    lost.rename(aside)
    lost.write_text("no directory\n")
    eventually(
        lambda: in_sync(made, ALL - {101}) == gone, "101 is out of those in it, and of no other"
    )
    assert all(p["leader"] != 101 for p in partitions(made) if p["partition"] in gone)
    assert in_sync(made, ALL) == set(range(PARTITIONS)) - gone
    load.wait_more()
    assert made.running["broker-101"].is_running()
    said = errors_of(made, "broker-101")
    assert said.count("is offline, with") == 1
    assert f"log directory {lost} is offline" in said and "ENOTDIR" in said
    shown = run_kvorum("brokers", "log-dirs", "101", "-b", bootstrap(made), "-o", "json")
    assert shown.returncode == 1
    health = run_kvorum("health", "-b", bootstrap(made))
    assert health.returncode == 4
    assert f"3 of 4 online; offline: broker 101 {lost} (" in health.stdout
    states = {Path(row["log_dir"]).name: row["state"] for row in json.loads(shown.stdout)}
    assert states == {kept.name: "online", lost.name: "offline"}
    assert len({row["directory_id"] for row in json.loads(shown.stdout)} - {None}) == 2
    assert "ENOTDIR" in "".join(row["reason"] for row in json.loads(shown.stdout))

    # A start without the directory serves the partitions of the other one, and creates none again.
    made.stop("broker-101")
    load.wait_more()
    made.start("broker-101")
    eventually(lambda: in_sync(made, ALL) == set(range(PARTITIONS)) - gone, "back in the others")
    load.wait_more()
    assert not held_in(kept) & gone

    # The disk is back: the broker catches up from the leaders.
    made.stop("broker-101")
    lost.unlink()
    aside.rename(lost)
    made.start("broker-101")
    eventually(lambda: in_sync(made, ALL) == set(range(PARTITIONS)), "all in sync again")
    load.wait_more()
    load.finish()
    assert_nothing_lost(load, bootstrap(made))
    assert held_in(lost) == gone


def test_a_directory_with_the_metadata_log_ends_the_broker_with_a_sentence(made: HandMade) -> None:
    topics = Topics(bootstrap(made))
    topics.create("t", 2)
    load = Load(bootstrap(made), "t", 2)
    load.wait_more()
    first, _ = directories(made)
    first.rename(first.with_name("aside"))
    first.write_text("no directory\n")
    command = made.running["broker-101"]
    eventually(lambda: not command.is_running(), "the broker ends")
    assert made.running.pop("broker-101").wait() == 1
    load.wait_more()
    load.finish()
    assert_nothing_lost(load, bootstrap(made))
    assert "holds the metadata log and has failed" in errors_of(made, "broker-101")
    assert f"cannot use data directory {first}: it is no directory" in made.refusal("broker-101")


def test_a_damaged_replica_is_begun_anew_on_command(made: HandMade) -> None:
    topics = Topics(bootstrap(made))
    topics.create("t", PARTITIONS, min_insync_replicas=2)
    load = Load(bootstrap(made), "t", PARTITIONS)
    load.wait_more(1_000)
    kept, other = directories(made)
    made.kill("broker-101")
    folder = next(d / "t-0" for d in (kept, other) if (d / "t-0").is_dir())
    log = folder / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 3] ^= 0xFF
    log.write_bytes(data)
    for directory in (kept, other):
        (directory / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    made.start("broker-101")
    others = set(range(1, PARTITIONS))
    eventually(lambda: in_sync(made, ALL) == others, "101 is in sync in the other partitions")
    assert f"cannot open t-0: {log} at byte" in errors_of(made, "broker-101")
    config = ("--config", str(made.file("broker-101")), "-b", bootstrap(made))
    running = run_kvorum("partitions", "restore", "t:0", *config)
    assert running.returncode == 2 and "in use by another process" in running.stderr

    made.stop("broker-101")
    dry = run_kvorum("partitions", "restore", "t:0", *config, "--dry-run", "-o", "json")
    assert (dry.returncode, json.loads(dry.stdout)["changed"]) == (0, False)
    assert log.exists()
    done = run_kvorum("partitions", "restore", "t:0", *config, "-o", "json")
    assert done.returncode == 0, done.stderr
    (aside,) = json.loads(done.stdout)["mark_deleted"]
    assert (Path(aside) / log.name).read_bytes() == data
    made.start("broker-101")
    eventually(lambda: in_sync(made, ALL) == others | {0}, "t-0 is in sync again")
    load.wait_more()
    load.finish()
    assert_nothing_lost(load, bootstrap(made))
    assert Path(aside).is_dir()


def test_the_only_replica_in_sync_is_not_begun_anew_unless_told_so(made: HandMade) -> None:
    alone = run_kvorum(
        "topics", "create", "alone", "--partitions", "3", "--replication-factor", "1",
        "-b", bootstrap(made),
    )  # fmt: skip
    assert alone.returncode == 0, alone.stderr
    load = Load(bootstrap(made), "alone", 3)
    load.wait_more()
    load.finish()
    mine = next(p["partition"] for p in partitions(made, "alone") if p["leader"] == 101)
    made.stop("broker-101")
    config = ("--config", str(made.file("broker-101")), "-b", bootstrap(made))
    refused = run_kvorum("partitions", "restore", f"alone:{mine}", *config)
    assert refused.returncode == 1
    assert "no replica of" in refused.stderr and "--unsafe" in refused.stderr
    done = run_kvorum("partitions", "restore", f"alone:{mine}", *config, "--unsafe")
    assert done.returncode == 0, done.stderr
    made.start("broker-101")

    def leads() -> bool:
        return partitions(made, "alone")[mine]["leader"] == 101

    eventually(leads, "the empty replica leads")
