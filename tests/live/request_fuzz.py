"""Well-formed requests of random content, for every API and version that a broker serves.

Fields are drawn by their types. Names and numbers come from short lists of existing values and of
values at which code often fails. A seed determines the requests, so that a run can be repeated.
"""

from __future__ import annotations

import dataclasses
import random
import struct
import typing
from typing import Any

from kvorum.broker.api.registry import SERVED
from kvorum.storage.format.batch import build_batch
from kvorum.wire.kio_codec import encode_request, message_class

TOPIC = "fuzzed"
"""The one topic that requests may find; others must not be harmed."""
NAMES = ("", TOPIC, "missing", "__consumer_offsets", "bad name", "g", "x" * 300, "müller", "\x00")
#: None is the id of a broker of the cluster: a request to unregister that broker would be obeyed.
SMALL = (-2, -1, 0, 1, 2, 3, 7)
INTEGERS = {
    "int8": (*SMALL, 127, -128),
    "int16": (*SMALL, (1 << 15) - 1, -(1 << 15)),
    "uint16": (0, 1, 9092, (1 << 16) - 1),
    "int32": (*SMALL, 1_000, (1 << 31) - 1, -(1 << 31)),
    "int64": (*SMALL, (1 << 63) - 1, -(1 << 63)),
    "timedelta_i32": (-1, 0, 1, 50, 1_000, (1 << 31) - 1),
    "timedelta_i64": (-1, 0, 1, 50, 1_000, (1 << 53)),
}
#: Upper limits of these fields, and below an API that is never sent: a broker would obey, and the
#: cluster would change too much for the test.
COUNTS = {"num_partitions": 5, "count": 5, "replication_factor": 3}
SKIPPED = frozenset({"update_features"})


class RequestFuzz:
    """Endless requests."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._apis = [api for key, _, _ in SERVED.advertised() if (api := SERVED.get(key))]

    def frame(self) -> tuple[str, bytes]:
        """(description, frame with its length in front): in three of four cases a sound request of
        random content, else a request whose bytes were changed, cut or made up.
        """
        rng = self._rng
        api = rng.choice([api for api in self._apis if api.name not in SKIPPED])
        version = rng.randint(api.min_version, api.max_version)
        body = self._body(api.name, version)
        roll = rng.random()
        if roll < 0.1 and body:
            changed = bytearray(body)
            for _ in range(rng.randint(1, 4)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            body = bytes(changed)
        elif roll < 0.17:
            body = body[: rng.randint(0, len(body))]
        elif roll < 0.25:
            body = rng.randbytes(rng.randint(0, 60))
        is_flexible = api.key != 18 and version >= api.first_flexible
        head = struct.pack(">hhih", api.key, version, rng.getrandbits(31), 4) + b"fuzz"
        if is_flexible or (api.key == 18 and version >= 3):
            head += b"\x00"
        payload = head + body
        return f"{api.name} v{version}", struct.pack(">i", len(payload)) + payload

    def _body(self, name: str, version: int) -> bytes:
        values = self._entity(message_class(name, version, "request"))
        return bytes(encode_request(name, version, values))

    def _entity(self, cls: Any) -> dict[str, Any]:
        hints = typing.get_type_hints(cls)
        return {
            field.name: self._value(field, hints[field.name]) for field in dataclasses.fields(cls)
        }

    def _value(self, field: Any, hint: Any) -> Any:
        rng = self._rng
        arguments = typing.get_args(hint)
        is_nullable = type(None) in arguments
        if is_nullable and rng.random() < 0.15:
            return None
        if is_nullable:
            (hint,) = (part for part in arguments if part is not type(None))
            arguments = typing.get_args(hint)
        if typing.get_origin(hint) is tuple:
            count = rng.choice((0, 1, 1, 2, 3))
            return [self._one(field, arguments[0]) for _ in range(count)]
        return self._one(field, hint)

    def _one(self, field: Any, hint: Any) -> Any:
        rng = self._rng
        if dataclasses.is_dataclass(hint):
            return self._entity(hint)
        kind = field.metadata.get("kafka_type")
        if field.name in COUNTS:
            return rng.randint(-2, COUNTS[field.name])
        if kind in INTEGERS:
            return rng.choice(INTEGERS[kind])
        match kind:
            case "bool":
                return rng.random() < 0.5
            case "string":
                return rng.choice(NAMES)
            case "uuid":
                return rng.choice((bytes(16), rng.randbytes(16)))
            case "float64":
                return rng.choice((0.0, -1.0, 1e300, float("nan"), float("inf")))
            case "records":
                return self._batch()
        return rng.randbytes(rng.randint(0, 40))

    def _batch(self) -> bytes:
        rng = self._rng
        batch = build_batch(
            [(b"k", b"v")] * rng.randint(1, 3),
            timestamp_ms=rng.choice((0, 1_700_000_000_000, (1 << 62))),
            producer_id=rng.choice((-1, 0, 5)),
            producer_epoch=rng.choice((-1, 0, 1)),
            base_sequence=rng.choice((-1, 0, 1, 7)),
            is_transactional=rng.random() < 0.2,
            is_control=rng.random() < 0.1,
        )
        if rng.random() < 0.3:
            batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
        return bytes(batch)
