"""The image as a tree: folders whose content is built on demand, and plain leaves.

The tree follows the fields of the image's dataclasses, so a new field appears by itself.
`/topics_by_id` shows the content of `/topics` under the topics' ids.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any

from kvorum.metadata.configs.secrets import hidden_fields, shown_config
from kvorum.metadata.image.features import FeatureRange
from kvorum.metadata.image.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    ClusterImage,
    TopicImage,
)
from kvorum.metadata.image.persistent_map import Map
from kvorum.metadata.image.records import HIDDEN, Endpoint
from kvorum.runtime.errors import KvorumError
from kvorum.runtime.ids import uuid_text
from kvorum.runtime.text import address_text, percent_escaped

#: Kafka's names for the types of config resources; other types are shown as numbers.
RESOURCE_NAMES = {
    RESOURCE_TOPIC: "topic",
    RESOURCE_BROKER: "broker",
    RESOURCE_CLIENT_METRICS: "client-metrics",
    RESOURCE_GROUP: "group",
}

#: Folders that repeat others, or show the image's age; skipped by comparisons and searches.
REPEATING = frozenset({"topics_by_id", "provenance"})

DEFAULT_NAME = "<default>"
"""Stands for the empty name, the default of all resources of a type."""

_IN_PATHS = re.compile(r"[%/\x00-\x1f\x7f]")
_IN_PARTS = re.compile(r"[%/,=<\x00-\x1f\x7f]")


class NoSuchPath(KvorumError):
    """A path that does not exist in the image."""


@dataclasses.dataclass(frozen=True, slots=True)
class Folder:
    """A folder of the tree.

    value: the shown value; folders at one path are equal if their values are equal.
    build: makes the entries by name; folders among them are not built yet.
    """

    value: object
    build: Callable[[], dict[str, Node]]


Leaf = str | int | float | bool | None | list[Any]
Node = Folder | Leaf


def root(image: ClusterImage) -> Folder:
    """The tree of an image."""
    return Folder(image, partial(_image_entries, image))


def resolve(top: Node, path: str) -> Node:
    """The node at a path below `top`. Raises NoSuchPath naming the part that is missing."""
    node = top
    walked = ""
    for part in parts_of(path):
        walked += f"/{part}"
        entries = node.build() if isinstance(node, Folder) else {}
        if part not in entries:
            raise NoSuchPath(f"no such path in the metadata: {walked}")
        node = entries[part]
    return node


def parts_of(path: str) -> list[str]:
    """The names of a path; `.` and `..` work as in a shell."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return parts


def children(image: ClusterImage, path: str) -> list[str]:
    """Names below a folder (with a trailing slash if folders), or the leaf's own name."""
    node = resolve(root(image), path)
    return names_in(node) if isinstance(node, Folder) else [parts_of(path)[-1]]


def names_in(folder: Folder) -> list[str]:
    """Names of a folder's entries, those of folders with a trailing slash."""
    return [f"{n}/" if isinstance(c, Folder) else n for n, c in folder.build().items()]


def content(image: ClusterImage, path: str) -> Any:
    """The whole content at or below a path, as plain values."""
    return expanded(resolve(root(image), path))


def expanded(node: Node) -> Any:
    """A node with its whole content, as plain values."""
    if not isinstance(node, Folder):
        return node
    return {name: expanded(child) for name, child in node.build().items()}


def leaves(node: Node, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """Path and value of every leaf at or below a node; empty folders have none."""
    if not isinstance(node, Folder):
        yield path, node
        return
    for name, child in node.build().items():
        yield from leaves(child, f"{path}/{name}")


# --- entries of the folders -------------------------------------------------------------------


def _image_entries(image: ClusterImage) -> dict[str, Node]:
    entries: dict[str, Node] = {}
    for field in dataclasses.fields(image):
        value = getattr(image, field.name)
        match field.name:
            case "topics":
                entries["topics"] = _folder(image.topics, _topics_by_name)
                entries["topics_by_id"] = _folder(image.topics, _topics_by_id)
            case "configs":
                entries["configs"] = _folder(value, _config_entries)
            case "next_producer_id":
                entries["producer_ids"] = _folder(value, lambda v: {"next_producer_id": v})
            case "topic_ids" | "acl_ids" | "end_offset" | "epoch":
                continue
            case _:
                entries[field.name] = node_of(value)
    place = (image.end_offset, image.epoch)
    entries["provenance"] = _folder(place, lambda p: {"end_offset": p[0], "epoch": p[1]})
    return entries


def _topics_by_name(topics: Map[bytes, TopicImage]) -> dict[str, Node]:
    by_name = sorted(topics.values(), key=lambda topic: topic.name)
    return {topic.name: _folder(topic, _topic_entries) for topic in by_name}


def _topics_by_id(topics: Map[bytes, TopicImage]) -> dict[str, Node]:
    by_id = {uuid_text(topic_id): topic for topic_id, topic in topics.items()}
    return {text: _folder(topic, _named_topic_entries) for text, topic in sorted(by_id.items())}


def _topic_entries(topic: TopicImage) -> dict[str, Node]:
    """The partitions are entries of the topic's folder, beside its own fields."""
    entries: dict[str, Node] = {}
    for field in dataclasses.fields(topic):
        value = getattr(topic, field.name)
        match field.name:
            case "topic_id":
                entries["id"] = uuid_text(value)
            case "name" | "partitions":
                continue
            case _:
                entries[field.name] = node_of(value)
    return entries | {str(number): node_of(p) for number, p in sorted(topic.partitions.items())}


def _named_topic_entries(topic: TopicImage) -> dict[str, Node]:
    return {"name": topic.name, **_topic_entries(topic)}


def _config_entries(configs: Map[tuple[int, str], Map[str, str]]) -> dict[str, Node]:
    by_kind: dict[int, dict[str, Map[str, str]]] = {}
    for (kind, name), values in sorted(configs.items(), key=lambda item: item[0]):
        by_kind.setdefault(kind, {})[name or DEFAULT_NAME] = values
    return {
        RESOURCE_NAMES.get(kind, str(kind)): _folder(named, partial(_resource_entries, kind))
        for kind, named in by_kind.items()
    }


def _resource_entries(kind: int, named: Mapping[str, Map[str, str]]) -> dict[str, Node]:
    return {
        _segment(name): _folder(values, partial(_value_entries, kind))
        for name, values in sorted(named.items())
    }


def _value_entries(kind: int, values: Mapping[str, str]) -> dict[str, Node]:
    return {
        _segment(name): shown_config(kind, name, value) for name, value in sorted(values.items())
    }


# --- any value --------------------------------------------------------------------------------


def node_of(value: Any) -> Node:
    """Any value of an image: dataclasses and maps become folders, the rest leaves."""
    if isinstance(value, Mapping | Map):
        return _folder(value, _mapping_entries)
    if isinstance(value, bytes):
        return uuid_text(value) if len(value) == 16 else value.hex()
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Endpoint):
        return f"{value.name}://{address_text(value.host, value.port)}"
    if isinstance(value, tuple) and value and isinstance(value[0], FeatureRange):
        return _folder(value, _range_entries)
    if isinstance(value, frozenset | set):
        return [expanded(node_of(item)) for item in sorted(value)]
    if isinstance(value, tuple | list):
        return [expanded(node_of(item)) for item in value]
    if dataclasses.is_dataclass(value):
        return _folder(value, _field_entries)
    leaf: Leaf = value
    return leaf


def _folder(value: Any, entries: Callable[[Any], dict[str, Node]]) -> Folder:
    return Folder(value, partial(entries, value))


def _field_entries(value: Any) -> dict[str, Node]:
    entries = {f.name: node_of(getattr(value, f.name)) for f in dataclasses.fields(value)}
    entries |= dict.fromkeys(hidden_fields(value), HIDDEN)
    if entries.get("features") == []:
        # A node without reported levels has the folder too.
        entries["features"] = _folder((), _range_entries)
    return entries


def _mapping_entries(value: Mapping[Any, Any]) -> dict[str, Node]:
    def in_order(item: tuple[Any, Any]) -> tuple[bool, Any]:
        # Numbers in order of size, other keys in order of their text.
        is_number = isinstance(item[0], int)
        return not is_number, item[0] if is_number else key_text(item[0])

    return {key_text(key): node_of(item) for key, item in sorted(value.items(), key=in_order)}


def _range_entries(ranges: tuple[FeatureRange, ...]) -> dict[str, Node]:
    return {each.name: [each.min_level, each.max_level] for each in ranges}


def key_text(key: Any) -> str:
    """The entry name of a map's key. Pairs of a composite key have the form `type=name,...`; no
    other key gets the same name."""
    if isinstance(key, bytes):
        return uuid_text(key) if len(key) == 16 else key.hex()
    if isinstance(key, tuple):
        return ",".join(
            f"{_segment(str(part[0]))}={DEFAULT_NAME if part[1] is None else _part(part[1])}"
            if isinstance(part, tuple)
            else _segment(str(part))
            for part in key
        )
    return _segment(str(key))


def _segment(name: str) -> str:
    """A name within a path, escaped, as it may hold slashes and control characters."""
    return percent_escaped(name, _IN_PATHS)


def _part(name: str) -> str:
    """A name within a composite key, escaped."""
    return percent_escaped(name, _IN_PARTS)
