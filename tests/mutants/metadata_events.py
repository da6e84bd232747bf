"""Rules of `__kvorum_events`, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import mutants_of

DRIVER = "kvorum/broker/events/driver.py"
READER = "kvorum/broker/events/reader.py"
TOPIC = "kvorum/broker/events/topic.py"
SHARD = "kvorum/broker/events/shard.py"
FEED = "kvorum/metadata/events/feed.py"
MODEL = "kvorum/metadata/events/model.py"
SOURCE = "kvorum/metadata/events/source.py"
SECRETS = "kvorum/metadata/configs/secrets.py"

_RULES: tuple[tuple[str, str, str, str, str], ...] = (
    ("events-repeat", "a leader goes on behind the last offset", MODEL,
     "return self.origin.offset + 1", "return self.origin.offset"),
    ("events-half-snapshot", "a new leader finishes a snapshot that was begun", READER,
     "not position.is_whole", "False"),
    ("events-snapshot-index", "a snapshot goes on behind the last thing told", FEED,
     "islice(things(image, quorum), position.index, None)",
     "islice(things(image, quorum), position.index + 1, None)"),
    ("events-no-tombstones", "what ends gets a tombstone", SHARD,
     "yield from _tombstones(event.removed, event.origin)", "pass"),
    ("events-lost-tombstones", "a new leader writes the tombstones that the last one did not", READER,
     "ended = set(known) - KEPT_KEYS", "ended = set()"),
    ("events-gap-keeps-keys", "what ended within a gap gets a tombstone", READER,
     "offset, self._known)", "offset, ())"),
    ("events-gap-ends-quorum", "a gap does not end the quorum's things", FEED,
     "REMOVED_KEY, *QUORUM_KEYS})", "REMOVED_KEY})"),
    ("events-gap-quorum", "a new leader restates the voters at a snapshot's end", READER,
     "quorum.after(entries)", "quorum"),
    ("events-trimmed", "a log that was trimmed during a wait is a gap", READER,
     "        if image.end_offset < self._source.start_offset:\n            # The log",
     "        if False:\n            # The log"),
    ("events-ahead", "a leader whose metadata lags waits", READER,
     "if self._source.image.end_offset < offset:", "if False:"),
    ("events-too-few", "a leader with too few in-sync replicas waits", DRIVER,
     "if context.replica.core.check_produce(-1) == ErrorCode.NONE:", "if True:"),
    ("events-everywhere", "only partition 0 has events", DRIVER,
     'return EventsShard(f"{EVENTS_TOPIC}-0") if partition_id == 0 else None',
     'return EventsShard(f"{EVENTS_TOPIC}-0")'),
    ("events-old-image", "a broker asks for the topic in images of its own process", TOPIC,
     "broker.broker_epoch != broker_epoch", "False"),
    ("events-secrets", "a config that may be a password is hidden", SECRETS,
     "value is not None and is_hidden(key)", "False"),
    ("events-batch-start", "records below a position inside a batch are left out", SOURCE,
     "if offset <= entry.offset < end_offset:", "if entry.offset < end_offset:"),
)  # fmt: skip

MUTANTS = mutants_of(
    _RULES,
    tests=(
        "tests/test_metadata/test_events.py",
        "tests/test_broker/test_events_topic.py",
        "tests/test_broker/test_metadata_events.py",
        "tests/test_broker/test_metadata_events_on_brokers.py",
    ),
)
