"""Makes `kvorum/wire/schemas` from Kafka's JSON: `python -m tests.schemas.generate`.

kio's classes are made from the same JSON, and the form is the same: frozen dataclasses whose fields
say their `kafka_type` and `tag`, snake case, durations for `*Ms`. Two things differ. An error code
is an int16, because kio's parser refuses codes that its table lacks (134 to 136). A null array that
Kafka has as default is the default here too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvorum.chaos.live.systems.kafka_jars import OWN_LIBRARY
from tests.tree import ROOT

SCHEMAS = ROOT / "kvorum" / "wire" / "schemas"
#: Each message's folder in kio's naming, with the version that kio lacks.
WANTED = (
    ("api_versions", 5),
    ("delete_groups", 3),
    ("streams_group_describe", 1),
    ("streams_group_heartbeat", 1),
    ("streams_group_topology_description_update", 0),
    ("txn_offset_commit", 6),
    ("unregister_controller", 0),
)
KINDS = ("request", "response")
_NUMBERS = {
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint16": "u16",
    "uint32": "u32",
    "float64": "f64",
}
_PLAIN = {"string": "str", "bool": "bool", "bytes": "bytes", "uuid": "uuid.UUID | None"}


def jar() -> Path | None:
    """Kafka's jar with the JSON; None on a machine without it."""
    return next(iter(sorted(OWN_LIBRARY.glob("kafka-clients-*.jar"))), None)


def schema_of(jar_path: Path, name: str, kind: str) -> dict[str, Any]:
    """Kafka's JSON of a message, without its comments."""
    member = "".join(word.capitalize() for word in (*name.split("_"), kind))
    with zipfile.ZipFile(jar_path) as archive:
        text = archive.read(f"common/message/{member}.json").decode()
    found: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return found


def source_of(schema: dict[str, Any], version: int) -> str:
    """The module of one version of a message."""
    writer = _Writer(schema, version)
    body = "\n\n".join(writer.classes())
    flexible = _holds(schema["flexibleVersions"], version)
    if schema["type"] == "request":
        header, at = "RequestHeader", "request_header.v2" if flexible else "request_header.v1"
    else:
        # KIP-511: a client that asks for its first time cannot know the header's form.
        plain = schema["name"] == "ApiVersionsResponse" or not flexible
        header, at = "ResponseHeader", "response_header.v0" if plain else "response_header.v1"
    imports = [name for name in ("datetime", "uuid") if f"{name}." in body]
    lines = [
        f'"""{schema["name"]} v{version}, generated from Kafka\'s JSON."""',
        "",
        *(f"import {name}" for name in imports),
        "from dataclasses import dataclass, field",
        "from typing import ClassVar",
        "",
        f"from kio.schema.{at}.header import {header}",
        "from kio.static.constants import EntityType",
        f"from kio.static.primitive import {', '.join(writer.primitives(body))}",
        "",
        "",
        body,
    ]
    return _formatted("\n".join(lines))


class _Writer:
    def __init__(self, schema: dict[str, Any], version: int) -> None:
        self._schema = schema
        self._version = version
        self._is_flexible = _holds(schema["flexibleVersions"], version)
        self._common = {one["name"]: one for one in schema.get("commonStructs", ())}
        self._done: set[str] = set()

    def classes(self) -> Iterator[str]:
        yield from self._struct(self._schema["name"], self._schema["fields"])

    def primitives(self, body: str) -> list[str]:
        names = {*_NUMBERS.values(), "i32Timedelta"}
        used = [name for name in names if re.search(rf"\b{name}\b", body)]
        return sorted(used, key=lambda name: (name[0], int(re.sub(r"\D", "", name)), name))

    def _struct(self, name: str, fields: list[dict[str, Any]]) -> Iterator[str]:
        """The classes that this one uses, before it, as Python wants them."""
        if name in self._done:
            return
        self._done.add(name)
        present = [one for one in fields if _holds(one["versions"], self._version)]
        for one in present:
            inner = one["type"].removeprefix("[]")
            if inner not in _NUMBERS and inner not in _PLAIN:
                yield from self._struct(inner, one.get("fields") or self._common[inner]["fields"])
        is_whole = name == self._schema["name"]
        kind = self._schema["type"]
        header = f"{kind.capitalize()}Header"
        lines = [
            "@dataclass(frozen=True, slots=True, kw_only=True)",
            f"class {name}:",
            f"    __type__: ClassVar = EntityType.{kind if is_whole else 'nested'}",
            f"    __version__: ClassVar[i16] = i16({self._version})",
            f"    __flexible__: ClassVar[bool] = {self._is_flexible}",
            f"    __api_key__: ClassVar[i16] = i16({self._schema['apiKey']})",
            f"    __header_schema__: ClassVar[type[{header}]] = {header}",
            *(f"    {self._field(one)}" for one in present),
        ]
        yield "\n".join(lines) + "\n"

    def _field(self, one: dict[str, Any]) -> str:
        kafka_type = one["type"].removeprefix("[]")
        is_array = one["type"].startswith("[]")
        is_nullable = _holds(one.get("nullableVersions", "none"), self._version)
        name = _snake(one["name"])
        metadata: dict[str, Any] = {}
        if name.endswith("_ms"):
            if one["type"] != "int32":
                raise ValueError(f"{one['name']} of type {one['type']}: only int32 is a duration")
            name, kafka_type, annotation = name.removesuffix("_ms"), "timedelta_i32", "i32Timedelta"
        else:
            annotation = _NUMBERS.get(kafka_type) or _PLAIN.get(kafka_type) or kafka_type
        if kafka_type in _NUMBERS or kafka_type in _PLAIN or kafka_type.startswith("timedelta"):
            metadata["kafka_type"] = kafka_type
        if _holds(one.get("taggedVersions", "none"), self._version):
            metadata["tag"] = one["tag"]
        if is_array:
            annotation = f"tuple[{annotation}, ...]"
        if is_nullable:
            annotation += " | None"
        arguments = [f"metadata={json.dumps(metadata)}"] if metadata else []
        default = self._default(one, annotation, metadata)
        if default is not None:
            arguments.append(f"default={default}")
        written = f" = field({', '.join(arguments)})" if arguments else ""
        return f"{name}: {annotation}{written}"

    def _default(
        self, one: dict[str, Any], annotation: str, metadata: dict[str, Any]
    ) -> str | None:
        """The default as an expression; None if a value must be given."""
        given = one.get("default")
        if str(given) == "null":
            return "None"
        if one["type"].startswith("[]"):
            return "()" if metadata else None
        if one["name"].endswith("ErrorCode"):
            return "i16(0)"
        if given is None:
            return None
        if annotation == "i32Timedelta":
            return f"i32Timedelta.parse(datetime.timedelta(milliseconds={int(str(given), 0)}))"
        if annotation == "bool":
            return str(str(given).lower() == "true")
        if annotation.startswith("str"):
            return json.dumps(given)
        return f"{annotation}({int(str(given), 0)})"


def _holds(versions: str, version: int) -> bool:
    """Kafka's ranges: `2`, `2-5`, `3+`, `none`."""
    if versions == "none":
        return False
    low, _, high = versions.rstrip("+").partition("-")
    return int(low) <= version and (versions.endswith("+") or version <= int(high or low))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _formatted(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "schema.py", "-"]
    return subprocess.run(
        command, input=source, text=True, check=True, capture_output=True, cwd=ROOT
    ).stdout


def generated(jar_path: Path) -> dict[str, str]:
    """Each module's file name and text."""
    return {
        f"{name}_v{version}_{kind}.py": source_of(schema_of(jar_path, name, kind), version)
        for name, version in WANTED
        for kind in KINDS
    }


def main() -> None:
    found = jar()
    if found is None:
        raise SystemExit(f"no kafka-clients jar in {OWN_LIBRARY}: run deploy/setup first")
    for name, text in generated(found).items():
        (SCHEMAS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
