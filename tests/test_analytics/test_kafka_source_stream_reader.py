"""The offsets of batch and streaming queries, against a fake cluster that has offsets only."""

from __future__ import annotations

import logging

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from kvorum.analytics.kafka_source.batch import plan_batch
from kvorum.analytics.kafka_source.errors import DataLoss, OptionRefused, ReadFailed
from kvorum.analytics.kafka_source.options import parse_read_options
from kvorum.analytics.kafka_source.plan import OffsetRange
from kvorum.analytics.kafka_source.stream import StreamReader


class Numbers:
    """A cluster: earliest and latest offset of each partition; an offset's timestamp is 10 times
    the offset."""

    def __init__(self, **logs: tuple[int, int]) -> None:
        self.logs = {tuple_of(name): log for name, log in logs.items()}
        #: The high watermarks of partitions with an open transaction.
        self.open: dict[tuple[str, int], int] = {}
        #: Each call: which end of the log, and of which partition.
        self.asked: list[tuple[str, tuple[str, int]]] = []

    def partitions(self, *, may_be_missing: bool = False):
        if not self.logs and not may_be_missing:
            raise ReadFailed("topic t does not exist")
        return set(self.logs)

    def earliest(self, partitions):
        self.asked += [("earliest", key) for key in partitions]
        return {key: self.logs[key][0] for key in partitions}

    def latest(self, partitions):
        self.asked += [("latest", key) for key in partitions]
        return {key: self.logs[key][1] for key in partitions}

    def high_watermarks(self, partitions):
        return {key: self.open.get(key, self.logs[key][1]) for key in partitions}

    def at_timestamps(self, timestamps_ms):
        found = {}
        for key, time_ms in timestamps_ms.items():
            low, high = self.logs[key]
            offset = max(low, -(-time_ms // 10))
            found[key] = offset if offset < high else None
        return found


def tuple_of(name: str) -> tuple[str, int]:
    topic, _, number = name.partition("_")
    return topic, int(number)


def options(**given: str):
    names = {name.lower(): value for name, value in given.items()}
    return parse_read_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **names})


def text(one: OffsetRange) -> str:
    return f"{one.topic}-{one.partition} from {one.start_offset} to {one.end_offset}"


def planned(cluster: Numbers, **given: str) -> list[str]:
    return [text(one) for one in plan_batch(cluster, options(**given))]


def test_a_batch_reads_everything_by_default():
    assert planned(Numbers(t_0=(3, 9), t_1=(0, 0))) == ["t-0 from 3 to 9"]


@pytest.mark.parametrize(
    ("given", "ranges"),
    [
        ({"startingOffsets": '{"t": {"0": 5}}'}, ["t-0 from 5 to 9"]),
        (
            {"startingOffsets": '{"t": {"0": -2}}', "endingOffsets": '{"t": {"0": 6}}'},
            ["t-0 from 3 to 6"],
        ),
        ({"endingOffsets": '{"t": {"0": -1}}'}, ["t-0 from 3 to 9"]),
        ({"startingTimestamp": "45"}, ["t-0 from 5 to 9"]),
        ({"startingTimestamp": "45", "endingTimestamp": "70"}, ["t-0 from 5 to 7"]),
        ({"endingTimestamp": "99999"}, ["t-0 from 3 to 9"]),
        ({"endingOffsetsByTimestamp": '{"t": {"0": 41}}'}, ["t-0 from 3 to 5"]),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 80}}'}, ["t-0 from 8 to 9"]),
        ({"startingTimestamp": "70", "endingTimestamp": "40"}, []),
        (
            {"startingTimestamp": "900", "startingOffsetsByTimestampStrategy": "latest"},
            [],
        ),
    ],
    ids=str,
)
def test_a_batch_reads_between_two_positions(given, ranges):
    assert planned(Numbers(t_0=(3, 9)), **given) == ranges


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"startingTimestamp": "900"}, OptionRefused, "startingTimestamp finds no record"),
        ({"startingOffsets": '{"t": {"1": 0}}'}, OptionRefused, "startingOffsets leaves out t-0"),
        (
            {"startingOffsets": '{"t": {"0": 4, "1": 0}}'},
            OptionRefused,
            "startingOffsets names t-1, which the query does not read",
        ),
        (
            {"startingOffsets": '{"t": {"0": 1}}'},
            DataLoss,
            "startingOffsets is 1 for t-0, whose log has offsets 3 to 9",
        ),
        ({"startingOffsets": '{"t": {"0": 10}}'}, DataLoss, "startingOffsets is 10 for t-0"),
        ({"endingOffsets": '{"t": {"0": 12}}'}, DataLoss, "endingOffsets is 12 for t-0"),
        (
            {"startingOffsets": '{"t": {"0": 8}}', "endingOffsets": '{"t": {"0": 5}}'},
            OptionRefused,
            "the start of t-0 is 8, above its end 5",
        ),
    ],
    ids=str,
)
def test_a_batch_refuses_positions(given, kind, words):
    with pytest.raises(kind) as refused:
        planned(Numbers(t_0=(3, 9)), **given)
    assert words in str(refused.value)


def test_without_failing_a_batch_reads_what_is_there(caplog):
    given = {"startingOffsets": '{"t": {"0": 1}}', "endingOffsets": '{"t": {"0": 12}}'}
    with caplog.at_level(logging.WARNING):
        assert planned(Numbers(t_0=(3, 9)), failOnDataLoss="false", **given) == ["t-0 from 3 to 9"]
    assert "startingOffsets is 1 for t-0" in caplog.text
    assert "endingOffsets is 12 for t-0" in caplog.text


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"startingOffsets": '{"t": {"0": -2, "1": 0}}'},
        {"endingOffsets": '{"t": {"0": 5, "1": -1}}'},
        {"endingTimestamp": "99999", "startingOffsets": '{"t": {"0": 4, "1": 0}}'},
    ],
    ids=str,
)
def test_a_batch_asks_for_each_end_of_a_log_once(given):
    cluster = Numbers(t_0=(3, 9), t_1=(0, 4))
    planned(cluster, **given)
    assert len(cluster.asked) == len(set(cluster.asked))


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_an_offset_in_an_open_transaction_is_no_loss(option, caplog):
    cluster = Numbers(t_0=(3, 9))
    cluster.open["t", 0] = 12
    words = f"{option} is 11 for t-0, where a transaction is open from 9 on"
    given = {option: '{"t": {"0": 11}}'}
    with pytest.raises(ReadFailed, match=words) as refused:
        planned(cluster, **given)
    assert "; wait until it ends, or set kafka.isolation.level" in str(refused.value)
    with caplog.at_level(logging.WARNING):
        read = planned(cluster, failOnDataLoss="false", **given)
    assert read == ([] if option == "startingOffsets" else ["t-0 from 3 to 9"])
    assert words in caplog.text
    with pytest.raises(DataLoss, match="is 13 for t-0, whose log has offsets 3 to 9"):
        planned(cluster, **{option: '{"t": {"0": 13}}'})


@pytest.mark.parametrize(
    ("option", "special"), [("startingOffsets", "-2: earliest"), ("endingOffsets", "-1: latest")]
)
def test_a_batch_is_told_only_of_the_positions_that_it_may_have(option, special):
    with pytest.raises(OptionRefused) as refused:
        planned(Numbers(t_0=(3, 9), t_1=(0, 1)), **{option: '{"t": {"0": 5}}'})
    assert str(refused.value).endswith(f"leaves out t-1; name every partition ({special})")


def test_a_stream_is_told_of_both_ends():
    reader = stream(Numbers(t_0=(3, 9), t_1=(0, 1)), startingOffsets='{"t": {"0": 5}}')
    with pytest.raises(OptionRefused, match=r"every partition \(-1: latest, -2: earliest\)$"):
        reader.initialOffset()


def stream(cluster: Numbers, **given: str) -> StreamReader:
    reader = StreamReader(options(**given), ("value",))
    reader._opened = cluster
    return reader


def run(reader: StreamReader, start):
    """The next batch: its ranges and its end."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return [text(part.value) for part in reader.partitions(start, end)], end


def test_a_stream_starts_at_the_latest_offsets_with_an_empty_batch():
    cluster = Numbers(t_0=(0, 5))
    reader = stream(cluster)
    start = reader.initialOffset()
    assert start == {"t": {"0": 5}}
    cluster.logs["t", 0] = (0, 7)
    assert reader.initialOffset() == start
    ranges, end = run(reader, start)
    assert (ranges, end) == ([], start)
    assert run(reader, end) == (["t-0 from 5 to 7"], {"t": {"0": 7}})


def test_a_first_batch_that_is_run_again_keeps_its_end():
    """1. A query starts at offset 5 and is killed in its empty first batch. 2. Two records come.
    3. The restarted query must read both, though its own initial offset is 7."""
    restarted = stream(Numbers(t_0=(0, 7)))
    again = restarted.initialOffset()
    assert again == {"t": {"0": 7}}
    assert restarted.partitions(again, {"t": {"0": 5}}) == []
    assert run(restarted, {"t": {"0": 5}}) == (["t-0 from 5 to 7"], {"t": {"0": 7}})


def test_a_trigger_that_runs_once_reads_in_its_only_batch():
    reader = stream(Numbers(t_0=(0, 5)), startingOffsets="earliest", maxOffsetsPerTrigger="2")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == {"t": {"0": 5}}


def test_a_restarted_stream_goes_on_from_its_checkpoint():
    assert run(stream(Numbers(t_0=(0, 9))), {"t": {"0": 4}})[0] == ["t-0 from 4 to 9"]


def test_a_stream_takes_no_more_than_its_limit():
    reader = stream(Numbers(t_0=(0, 90), t_1=(0, 10)), maxOffsetsPerTrigger="20")
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    start = {"t": {"0": 0, "1": 0}}
    ranges, end = run(reader, start)
    assert end == {"t": {"0": 17, "1": 3}}
    assert ranges == ["t-0 from 0 to 17", "t-1 from 0 to 3"]


def test_a_stream_waits_for_the_least_number_of_offsets():
    cluster = Numbers(t_0=(0, 50))
    reader = stream(cluster, minOffsetsPerTrigger="10")
    _, end = run(reader, {"t": {"0": 0}})
    assert end == {"t": {"0": 50}}, "the first batch does not wait"
    cluster.logs["t", 0] = (0, 55)
    assert run(reader, end) == ([], end)
    cluster.logs["t", 0] = (0, 60)
    assert run(reader, end)[1] == {"t": {"0": 60}}


def test_a_stream_does_not_wait_longer_than_its_delay():
    cluster = Numbers(t_0=(0, 50))
    reader = stream(cluster, minOffsetsPerTrigger="10", maxTriggerDelay="0ms")
    _, end = run(reader, {"t": {"0": 0}})
    cluster.logs["t", 0] = (0, 51)
    assert run(reader, end)[1] == {"t": {"0": 51}}


def test_available_now_ends_at_the_offsets_of_its_start():
    cluster = Numbers(t_0=(0, 5))
    reader = stream(cluster, minOffsetsPerTrigger="100", maxOffsetsPerTrigger="100")
    reader.prepareForTriggerAvailableNow()
    cluster.logs = {("t", 0): (0, 8), ("t", 1): (0, 3)}
    _, end = run(reader, {"t": {"0": 2}})
    assert end == {"t": {"0": 5}}
    assert run(reader, end) == ([], end)


@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_available_now_starts_below_its_end_though_the_topics_grow(starting):
    """1. Spark fixes the end of the query at 5. 2. Records, and a topic, come. 3. Spark asks for
    the start. The new records are read by the next query, and none of them twice."""
    cluster = Numbers(t_0=(0, 5))
    reader = stream(cluster, startingOffsets=starting)
    reader.prepareForTriggerAvailableNow()
    cluster.logs = {("t", 0): (0, 8), ("new", 0): (0, 3)}
    start = reader.initialOffset()
    assert start == {"t": {"0": 5 if starting == "latest" else 0}}
    assert run(reader, start) == ([], start), "the first batch is empty"
    ranges, end = run(reader, start)
    assert ranges == ([] if starting == "latest" else ["t-0 from 0 to 5"])
    assert end == {"t": {"0": 5}}
    after = {"t": {"0": 8}, "new": {"0": 3}}
    assert run(stream(cluster), end) == (["new-0 from 0 to 3", "t-0 from 5 to 8"], after)


def test_available_now_refuses_a_start_above_its_end():
    cluster = Numbers(t_0=(0, 5))
    reader = stream(cluster, startingOffsets='{"t": {"0": 7}}')
    reader.prepareForTriggerAvailableNow()
    cluster.logs["t", 0] = (0, 8)
    with pytest.raises(DataLoss, match="startingOffsets is 7 for t-0, whose log has offsets 0 to"):
        reader.initialOffset()


def test_a_new_partition_is_read_from_its_start():
    cluster = Numbers(t_0=(0, 5))
    reader = stream(cluster)
    _, end = run(reader, {"t": {"0": 5}})
    cluster.logs["t", 1] = (0, 3)
    assert run(reader, end) == (["t-1 from 0 to 3"], {"t": {"0": 5, "1": 3}})


@pytest.mark.parametrize(
    ("logs", "words", "lenient"),
    [
        ({}, "has read t-0, t-1, which no longer exists", []),
        ({"t_0": (0, 9)}, "has read t-1, which no longer exists", ["t-0 from 4 to 9"]),
        (
            {"t_0": (0, 9), "t_1": (0, 2)},
            "has read t-1 up to offset 4, but its log ends at 2",
            ["t-0 from 4 to 9"],
        ),
        (
            {"t_0": (0, 4), "t_1": (0, 4), "t_2": (3, 9)},
            "partition t-2 is new to the query, but its log starts at offset 3",
            ["t-2 from 3 to 9"],
        ),
    ],
)
def test_a_stream_reports_records_that_are_gone(logs, words, lenient, caplog):
    start = {"t": {"0": 4, "1": 4}}
    with pytest.raises(DataLoss) as lost:
        run(stream(Numbers(**logs)), start)
    assert words in str(lost.value)
    with caplog.at_level(logging.WARNING):
        ranges, _ = run(stream(Numbers(**logs), failOnDataLoss="false"), start)
    assert ranges == lenient
    assert words in caplog.text


def test_the_progress_of_a_query_has_the_ends_of_the_partitions():
    reader = stream(Numbers(t_0=(0, 90)), maxOffsetsPerTrigger="20")
    assert reader.reportLatestOffset() is None
    run(reader, {"t": {"0": 0}})
    assert reader.reportLatestOffset() == {"t": {"0": 90}}
