"""The generated schemas are current, and the generator makes what kio makes from the same JSON."""

from __future__ import annotations

import dataclasses
import importlib.util
import random
from types import ModuleType
from typing import Any

import pytest
from kio.serial import entity_reader
from kio.static.constants import EntityType

from kvorum.wire import kio_codec
from kvorum.wire.kio_codec import encode_request, encode_response, message_class
from kvorum.wire.schema import Field, fields_of
from tests.schemas.generate import KINDS, SCHEMAS, WANTED, generated, jar, schema_of, source_of

#: Messages that kio has: nullable structs and arrays, tags, shared structs, durations, old forms.
COMPARED = (
    ("api_versions", 4),
    ("api_versions", 2),
    ("consumer_group_heartbeat", 1),
    ("delete_groups", 1),
    ("describe_cluster", 2),
    ("describe_quorum", 2),
    ("offset_fetch", 10),
    ("streams_group_describe", 0),
    ("txn_offset_commit", 2),
    ("unregister_broker", 0),
    ("update_features", 2),
)
BOUNDS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "timedelta_i32": 31, "int64": 63}
needs_jar = pytest.mark.skipif(jar() is None, reason="needs Apache Kafka's clients jar in .tools")


@needs_jar
def test_the_generated_schemas_are_current():
    made = generated(jar())
    for name, text in made.items():
        kept = (SCHEMAS / name).read_text(encoding="utf-8")
        assert kept == text, f"{name}: run python -m tests.schemas.generate"
    assert {path.name for path in SCHEMAS.glob("*.py")} == {*made, "__init__.py"}


@pytest.mark.parametrize(("name", "version"), WANTED)
def test_kio_still_lacks_each_generated_schema(name, version):
    assert not _is_in_kio(name, version), f"{name} v{version}: remove it from WANTED"


@needs_jar
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "version"), COMPARED)
def test_generated_classes_write_and_read_the_bytes_of_kios(name, version, kind, tmp_path):
    made = _class_in(_module(source_of(schema_of(jar(), name, kind), version), tmp_path))
    kios = message_class(name, version, kind)
    assert made is not kios
    assert made.__flexible__ == kios.__flexible__
    assert made.__api_key__ == kios.__api_key__
    assert made.__header_schema__ is kios.__header_schema__
    rng = random.Random(f"{name} {version} {kind}")
    for _ in range(50):
        values = _values(kios, rng)
        mine, its = bytearray(), bytearray()
        kio_codec._ENCODERS.of(made)(mine, values)
        kio_codec._ENCODERS.of(kios)(its, values)
        assert bytes(mine) == bytes(its)
        (read, size), (kio_read, kio_size) = (
            entity_reader(cls)(bytes(mine), 0) for cls in (made, kios)
        )
        assert dataclasses.asdict(read) == dataclasses.asdict(kio_read)
        assert size == kio_size == len(mine)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "version"), WANTED)
def test_each_generated_message_is_read_as_it_was_written(name, version, kind):
    rng = random.Random(f"{name} {kind}")
    encode = encode_request if kind == "request" else encode_response
    cls = message_class(name, version, kind)
    for _ in range(50):
        values = _values(cls, rng)
        body = bytes(encode(name, version, values))
        entity = kio_codec._read(name, version, kind, memoryview(body), None)
        again = bytearray(kio_codec._ENCODERS.of(cls)(out := bytearray(), _plain(entity)) or out)
        assert bytes(again) == body


def test_an_error_code_that_kio_does_not_know_is_read():
    body = encode_response(
        "unregister_controller", 0, {"throttle_time": 0, "error_code": 136, "error_message": None}
    )
    read = kio_codec.read_response("unregister_controller", 0, memoryview(body))
    assert read.error_code == 136


def _is_in_kio(name: str, version: int) -> bool:
    if importlib.util.find_spec(f"kio.schema.{name}") is None:
        return False
    return importlib.util.find_spec(f"kio.schema.{name}.v{version}") is not None


def _module(source: str, tmp_path: Any) -> ModuleType:
    path = tmp_path / "made.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("made", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _class_in(module: ModuleType) -> Any:
    whole = (EntityType.request, EntityType.response)
    (found,) = [one for one in vars(module).values() if getattr(one, "__type__", None) in whole]
    return found


def _values(entity: Any, rng: random.Random) -> dict[str, Any]:
    return {
        field.name: _value(field, rng)
        for field in fields_of(entity)
        if field.tag is None or rng.random() < 0.5
    }


def _value(field: Field, rng: random.Random) -> Any:
    if field.is_optional and field.kafka_type != "uuid" and rng.random() < 0.3:
        return None
    if field.is_array:
        return tuple(_one(field, rng) for _ in range(rng.randrange(3)))
    return _one(field, rng)


def _one(field: Field, rng: random.Random) -> Any:
    if field.struct is not None:
        return _values(field.struct, rng)
    kind = field.kafka_type
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "error_code" or field.name.endswith("error_code"):
        return rng.randrange(-1, 134)
    if kind == "string":
        return rng.choice(("", "a", "ä" * 70, "topic-1"))
    if kind in ("bytes", "records"):
        return rng.randbytes(rng.randrange(200))
    if kind == "uuid":
        return rng.randbytes(16)
    low = 0 if kind.startswith("uint") else -(2 ** BOUNDS[kind])
    return rng.randrange(low, 2 ** BOUNDS[kind])


def _plain(value: Any) -> Any:
    """An entity that was read as the mapping that the encoder takes."""
    if dataclasses.is_dataclass(value):
        return {
            field.name: (kio_codec.uuid_bytes(held) if field.kafka_type == "uuid" else _plain(held))
            for field in fields_of(type(value))
            for held in [getattr(value, field.name)]
        }
    if isinstance(value, tuple):
        return tuple(_plain(one) for one in value)
    return kio_codec.milliseconds(value) if hasattr(value, "total_seconds") else value
