"""The options of the source and sink: accepted values, and each refusal with what to do."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from pyspark.sql.types import StructType

from kvorum.analytics.kafka_source.clients import check_consumer, check_producer
from kvorum.analytics.kafka_source.columns import check_schema
from kvorum.analytics.kafka_source.errors import OptionRefused
from kvorum.analytics.kafka_source.offsets import (
    EARLIEST,
    LATEST,
    AtEnd,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
)
from kvorum.analytics.kafka_source.options import (
    READ_OPTIONS,
    WRITE_OPTIONS,
    Assigned,
    Matching,
    Subscribed,
    check_batch,
    check_stream,
    parse_read_options,
    parse_write_options,
)
from kvorum.analytics.kafka_source.write import check_write_schema
from tests.tree import ROOT

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def read(**options: str):
    """ReadOptions of options by their documented names; `__` stands for a dot."""
    given = {name.replace("__", ".").lower(): value for name, value in options.items()}
    if not {"subscribe", "subscribepattern", "assign"} & set(given):
        given["subscribe"] = "orders"
    return parse_read_options({**SERVERS, **given})


def write(**options: str):
    given = {name.replace("__", ".").lower(): value for name, value in options.items()}
    return parse_write_options({**SERVERS, **given})


def test_topics_are_named_in_three_ways():
    assert read(subscribe=" b, a,b ,").topics == Subscribed(topics=("a", "b"))
    assert read(subscribePattern="orders-.*").topics == Matching(pattern="orders-.*")
    assert read(assign='{"a.b_c-1": [1, 0]}').topics == Assigned(
        partitions=(("a.b_c-1", 0), ("a.b_c-1", 1))
    )


@pytest.mark.parametrize(
    ("options", "position"),
    [
        ({}, None),
        ({"startingOffsets": "Earliest"}, AtEnd(offset=EARLIEST)),
        ({"startingOffsets": "latest"}, AtEnd(offset=LATEST)),
        (
            {"startingOffsets": '{"orders": {"0": 5, "1": -2}}'},
            AtOffsets(option="startingOffsets", offsets={("orders", 0): 5, ("orders", 1): -2}),
        ),
        ({"startingTimestamp": "7"}, AtTimestamp(option="startingTimestamp", timestamp_ms=7)),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"0": 5}}', "startingOffsets": "latest"},
            AtTimestamps(option="startingOffsetsByTimestamp", timestamps_ms={("orders", 0): 5}),
        ),
        (
            {"startingTimestamp": "7", "startingOffsetsByTimestamp": '{"orders": {"0": 5}}'},
            AtTimestamp(option="startingTimestamp", timestamp_ms=7),
        ),
    ],
)
def test_a_timestamp_goes_before_offsets(options, position):
    assert read(**options).starting == position


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500", 500), ("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("1h", 3_600_000)],
)
def test_a_trigger_delay_has_sparks_units(text, milliseconds):
    assert read(maxTriggerDelay=text).trigger_delay_max_ms == milliseconds


def test_settings_of_java_get_the_names_of_librdkafka():
    settings = read(
        kafka__request__timeout__ms="1", kafka__max__partition__fetch__bytes="2",
        kafka__isolation__level="read_uncommitted", kafka__group__id="mine",
        kafka__default__api__timeout__ms="3",
    )  # fmt: skip
    assert settings.settings["socket.timeout.ms"] == "1"
    assert settings.settings["fetch.message.max.bytes"] == "2"
    assert settings.settings["isolation.level"] == "read_uncommitted"
    assert settings.settings["group.id"] == "mine"
    assert settings.api_timeout_ms == 3
    assert "default.api.timeout.ms" not in settings.settings
    producer = write(kafka__buffer__memory="1048576", kafka__max__request__size="9").settings
    assert producer["queue.buffering.max.kbytes"] == "1024"
    assert producer["message.max.bytes"] == "9"


def test_a_read_is_of_committed_records_and_a_write_is_idempotent_by_default():
    assert read().settings["isolation.level"] == "read_committed"
    assert write().settings["enable.idempotence"] is True
    assert write().settings["acks"] == "all"
    assert write(kafka__acks="1").settings["enable.idempotence"] is False
    check_consumer(read())
    check_producer(write().settings)
    check_producer(write(kafka__acks="1").settings)


READ_REFUSALS = [
    ({"subscribe": "a", "assign": '{"a": [0]}'}, "subscribe and assign are both set; set only one"),
    ({"subscribe": " , "}, "subscribe is empty; name one topic"),
    ({"subscribePattern": ""}, "subscribePattern is empty"),
    ({"subscribePattern": "("}, "not a regular expression"),
    ({"assign": "{}"}, "assign is '{}'; write JSON such as {\"orders\": [0, 1]}"),
    ({"assign": '{"a": [-1]}'}, "write JSON such as"),
    ({"assign": '{"a": 1}'}, "write JSON such as"),
    ({"assign": "a"}, "assign is 'a'; write JSON such as"),
    ({"assign": '{"a": [0]}', "startingOffsets": '{"a": {"1": 0}}'}, "a-1 has an offset or a"),
    ({"startingOffsets": "first"}, "startingOffsets is 'first'; set it to earliest, latest or"),
    ({"startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets has -3 for a-0; set -2 or more"),
    ({"startingOffsets": '{"a": {"x": 1}}'}, "write JSON such as"),
    ({"startingOffsets": '{"a": {"0": true}}'}, "write JSON such as"),
    ({"startingOffsets": '{"a": 1}'}, "write JSON such as"),
    ({"startingOffsets": '{"a": '}, "write JSON such as"),
    ({"startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "has -1 for a-0; set 0 or more"),
    ({"startingTimestamp": "today"}, "startingTimestamp is 'today'; set it to milliseconds"),
    ({"startingOffsetsByTimestampStrategy": "x"}, "is 'x'; set it to error or latest"),
    ({"failOnDataLoss": "no"}, "failOnDataLoss is 'no'; set it to true or false"),
    ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0'; set it to a whole number"),
    ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "9, above maxOffsetsPerTrigger"),
    ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'; set it to a time such as 500ms"),
    ({"minPartitions": "-1"}, "minPartitions is '-1'; set it to a whole number above 0"),
    ({"maxRecordsPerPartition": "x"}, "maxRecordsPerPartition is 'x'"),
    ({"fetchOffset.numRetries": "x"}, "fetchOffset.numRetries is 'x'; set it to a whole"),
    ({"kafkaConsumer.pollTimeoutMs": "0"}, "kafkaConsumer.pollTimeoutMs is '0'"),
    ({"kafka.default.api.timeout.ms": "0"}, "kafka.default.api.timeout.ms is '0'"),
    ({"startingOffset": "latest"}, "a read; did you mean startingOffsets?"),
    ({"zzz": "1"}, "unknown option 'zzz' of a read; known are subscribe,"),
    ({"topic": "a"}, "topic is not an option of a read; leave it out (topics: option subscribe)"),
    ({"path": "a"}, "a path has no meaning for topics"),
    ({"kafka.bootstrap.servers": " "}, "the option kafka.bootstrap.servers is missing"),
    ({"kafka.auto.offset.reset": "latest"}, "the option startingOffsets says where a query starts"),
    ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit cannot be set"),
    ({"kafka.key.deserializer": "x"}, "keys arrive as binary"),
    ({"kafka.value.deserializer": "x"}, "values arrive as binary"),
    ({"kafka.interceptor.classes": "x"}, "an interceptor could change records"),
    ({"kafka.max.poll.records": "5"}, "the source itself decides"),
    ({"kafka.partition.assignment.strategy": "x"}, "not those of a group"),
    ({"kafka.sasl.jaas.config": "x"}, "set kafka.sasl.username and kafka.sasl.password"),
    ({"kafka.ssl.truststore.location": "x"}, "set kafka.ssl.ca.location"),
    ({"kafka.enable.partition.eof": "false"}, "the source needs it"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "words"), READ_REFUSALS, ids=lambda value: str(value)[:60])
def test_a_read_refuses(options, words):
    given = {**SERVERS, "subscribe": "orders", **options}
    if {"assign", "subscribePattern"} & set(options) and "subscribe" not in options:
        del given["subscribe"]
    with pytest.raises(OptionRefused) as refused:
        parse_read_options({name.lower(): value for name, value in given.items()})
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_read_without_topics_is_refused():
    with pytest.raises(OptionRefused, match="no topics are named; set one of the options"):
        parse_read_options(SERVERS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": ""}, "the option topic is empty"),
        ({"subscribe": "a"}, "subscribe is not an option of a write; leave it out"),
        ({"topics": "a"}, "unknown option 'topics' of a write; did you mean topic?"),
        ({"kafka.key.serializer": "x"}, "keys are written as they are"),
        ({"kafka.value.serializer": "x"}, "values are written as they are"),
        ({"kafka.transactional.id": "x"}, "writes are at least once"),
        ({"kafka.partitioner.class": "x"}, "set kafka.partitioner"),
        ({"kafka.max.block.ms": "5"}, "kafka.delivery.timeout.ms limits"),
    ],
)  # fmt: skip
def test_a_write_refuses(options, words):
    with pytest.raises(OptionRefused) as refused:
        parse_write_options({**SERVERS, **options})
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("kafka.isolation.levle", "x", "did you mean kafka.isolation.level?"),
        ("kafka.isolation.level", "x", "correct kafka.isolation.level"),
    ],
)
def test_librdkafkas_own_refusals_name_the_option(option, value, words):
    options = parse_read_options({**SERVERS, "subscribe": "a", option: value})
    with pytest.raises(OptionRefused, match=re.escape(words)):
        check_consumer(options)


def test_a_batch_query_goes_from_early_to_late():
    check_batch(
        read(startingOffsets='{"orders": {"0": -2}}', endingOffsets='{"orders": {"0": -1}}')
    )
    for option, value in [
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"orders": {"0": -1}}'),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"orders": {"0": -2}}'),
    ]:
        with pytest.raises(OptionRefused, match=f"{option} cannot be"):
            check_batch(read(**{option: value}))


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_streaming_query_has_no_end(option):
    value = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(option, '{"orders": {"0": 5}}')
    with pytest.raises(OptionRefused, match="a streaming query has no end"):
        check_stream(read(**{option: value}))
    check_stream(read())


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("value string", "the schema has value as string; a topic has it as binary"),
        ("words binary", "the schema has a column 'words'; the columns of a topic are key,"),
        ("headers array<struct<key:string,value:binary>>", "(set includeHeaders to true)"),
        ("value binary, value binary", "each once"),
    ],
)
def test_a_schema_is_made_of_the_columns_of_a_topic(schema, words):
    with pytest.raises(OptionRefused) as refused:
        check_schema(struct(schema), has_headers=False)
    assert words in str(refused.value)
    check_schema(struct("offset long, value binary"), has_headers=False)


@pytest.mark.parametrize(
    ("schema", "topic", "words"),
    [
        ("key string", "t", "the rows have no column value, only key"),
        ("value string", None, "no topic is named; set the option topic, or add a column topic"),
        ("value int", "t", "the column value is int; cast it to string or binary"),
        ("value string, key long", "t", "the column key is bigint"),
        ("value string, topic int", "t", "the column topic is int; cast it to string"),
        ("value string, partition long", "t", "the column partition is bigint; cast it to int"),
        ("value string, headers string", "t", "cast it to array<struct<key:string,value:binary>>"),
    ],
)
def test_rows_must_be_able_to_become_records(schema, topic, words):
    options = write() if topic is None else write(topic=topic)
    with pytest.raises(OptionRefused) as refused:
        check_write_schema(struct(schema), options)
    assert words in str(refused.value)
    check_write_schema(struct("value binary, key string, other long"), write(topic="t"))


def struct(ddl: str) -> StructType:
    """A schema of DDL, without the JVM that Spark's own parser needs."""
    from pyspark.sql import types

    kinds = {
        "string": types.StringType(), "binary": types.BinaryType(), "int": types.IntegerType(),
        "long": types.LongType(),
        "array<struct<key:string,value:binary>>": types.ArrayType(
            StructType().add("key", "string").add("value", "binary")
        ),
    }  # fmt: skip
    schema = StructType()
    for column in ddl.split(", "):
        name, _, kind = column.partition(" ")
        schema = schema.add(name, kinds[kind])
    return schema


def test_the_document_has_every_option():
    text = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    missing = [name for name in (*READ_OPTIONS, *WRITE_OPTIONS) if f"`{name}`" not in text]
    assert missing == []


@pytest.mark.parametrize("missing", ["confluent_kafka", "pyspark.sql.streaming.datasource"])
def test_a_missing_library_is_named_with_the_extra_that_brings_it(missing):
    """PySpark has the second one since 4.2."""
    script = f"import sys; sys.modules[{missing!r}] = None\nimport kvorum.analytics.kafka_source\n"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: topics in Spark need {missing}; pip install 'kvorum[spark]' brings it "
        "(PySpark 4.2 or later, pyarrow and confluent-kafka)"
    )
