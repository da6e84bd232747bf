"""Damage in old records of a real leader, in segments that a start does not read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.by_hand import HandMade
from tests.live.clients import Load, assert_nothing_lost
from tests.live.cluster import run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

NAMES = ("broker-101", "broker-102", "broker-103")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[HandMade]:
    made = HandMade(tmp_path, controllers=1, brokers=3)
    try:
        made.start("controller-1", *NAMES)
        eventually(lambda: len(ask(made, "brokers", "list")) == 3, "three brokers serve")
        yield made
    finally:
        made.close()


def ask(made: HandMade, *arguments: str) -> Any:
    bootstrap = ",".join(made.address(name) for name in NAMES[:2])
    done = run_kvorum(*arguments, "-b", bootstrap, "-o", "json")
    return json.loads(done.stdout) if done.stdout else []


def partition(made: HandMade) -> tuple[int, set[int]]:
    """Its leader and its ISR."""
    (found,) = ask(made, "topics", "describe", "t")[0]["partitions"]
    return found["leader"], set(found["isr"])


def test_a_follower_that_begins_anew_finds_damage_and_the_lead_goes_to_a_sound_replica(
    made: HandMade,
) -> None:
    topic = ("topics", "create", "t", "--replica-assignment", "101:102:103")
    assert ask(made, *topic, "--config", "segment.bytes=1048576")
    bootstrap = ",".join(made.address(name) for name in NAMES[:2])
    load = Load(bootstrap, "t")
    folder = made.data("broker-101") / "t-0"
    eventually(lambda: len(list(folder.glob("*.log"))) > 1, "a segment is sealed")
    load.finish()
    made.stop("broker-101")
    segment = folder / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    at = 0
    while at < len(data) // 2:  # the batch in the middle; its last byte
        at += int.from_bytes(data[at + 8 : at + 12], "big") + 12
    data[at - 1] ^= 0x10
    segment.write_bytes(data)
    made.start("broker-101")
    eventually(lambda: partition(made)[1] == {101, 102, 103}, "all are in sync")
    ask(made, "partitions", "elect", "t:0")
    eventually(lambda: partition(made)[0] == 101, "101 leads again")

    made.stop("broker-103")
    made.wipe("broker-103")
    made.start("broker-103")
    eventually(lambda: partition(made) == (102, {102, 103}), "102 leads, 103 has all")
    said = (made.folder / "broker-101.err").read_text()
    assert f"t-0 is offline: check of what a follower asks for again: {segment} at byte" in said
    heard = (made.folder / "broker-103.err").read_text()
    assert heard.count("refuses the records that broker 101 at 127.0.0.1:") == 1
    assert_nothing_lost(load, bootstrap)

    made.stop("broker-101")
    made.start("broker-101")

    def shown() -> str:
        return run_kvorum("brokers", "log-dirs", "101", "-b", bootstrap).stderr

    eventually(lambda: "which is online: 1 (t-0)" in shown(), "the damage is not forgotten")
    made.stop("broker-101")
    config = ("--config", str(made.file("broker-101")), "-b", made.address("broker-102"))
    done = run_kvorum("partitions", "restore", "t:0", *config)
    assert done.returncode == 0, done.stderr
    made.start("broker-101")
    eventually(lambda: partition(made)[1] == {101, 102, 103}, "101 has begun anew")
