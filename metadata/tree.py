"""The image as a tree of names, for `ls` and `cat`: folders are dicts, leaves are plain values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from metadata.image import ClusterImage
from metadata.quotas import entity_text
from runtime.errors import KvorumError
from runtime.ids import uuid_text

_RESOURCE_NAMES = {2: "topic", 4: "broker"}


class NoSuchPath(KvorumError):
    """A path that names nothing in the image."""


def children(image: ClusterImage, path: str) -> list[str]:
    """Names below a folder (with a trailing slash if folders), or the leaf's own name."""
    node = _resolve(image, path)
    if not isinstance(node, dict):
        return [_parts(path)[-1]]
    return [f"{name}/" if _is_folder(_value(child)) else name for name, child in node.items()]


def content(image: ClusterImage, path: str) -> Any:
    """All that lies at or below a path, as plain values."""
    return _expand(_resolve(image, path))


def _resolve(image: ClusterImage, path: str) -> Any:
    node: Any = _root(image)
    walked = ""
    for part in _parts(path):
        walked += f"/{part}"
        if not isinstance(node, dict) or part not in node:
            raise NoSuchPath(f"no such path in the metadata: {walked}")
        node = _value(node[part])
    return node


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _root(image: ClusterImage) -> dict[str, Any]:
    return {
        "brokers": lambda: {
            str(broker_id): lambda b=broker: _node(b)
            for broker_id, broker in sorted(image.brokers.items())
        },
        "controllers": lambda: {
            str(controller_id): lambda c=controller: _node(c)
            for controller_id, controller in sorted(image.controllers.items())
        },
        "topics": lambda: {
            name: lambda t=topic_id: _topic(image, t)
            for name, topic_id in sorted(image.topic_ids.items())
        },
        "configs": lambda: {
            _RESOURCE_NAMES.get(kind, str(kind)): {
                name or "<default>": dict(sorted(image.configs[kind, name].items()))
                for other, name in sorted(image.configs)
                if other == kind
            }
            for kind in sorted({kind for kind, _ in image.configs})
        },
        "client_quotas": lambda: {
            entity_text(entity): dict(sorted(image.client_quotas[entity].items()))
            for entity in sorted(image.client_quotas, key=entity_text)
        },
        "features": lambda: dict(sorted(image.features.items())),
        "producer_ids": lambda: {"next_producer_id": image.next_producer_id},
        "provenance": lambda: {"end_offset": image.end_offset, "epoch": image.epoch},
    }


def _node(node: Any) -> dict[str, Any]:
    """A registered broker or controller."""
    fields = dataclasses.asdict(node)
    fields["incarnation_id"] = uuid_text(node.incarnation_id)
    fields["endpoints"] = [f"{e.name}://{e.host}:{e.port}" for e in node.endpoints]
    fields["features"] = {f.name: [f.min_level, f.max_level] for f in node.features}
    return fields


def _topic(image: ClusterImage, topic_id: bytes) -> dict[str, Any]:
    topic = image.topics[topic_id]
    tree: dict[str, Any] = {"id": uuid_text(topic_id)}
    for partition_id, partition in sorted(topic.partitions.items()):
        tree[str(partition_id)] = {
            field.name: _plain(getattr(partition, field.name))
            for field in dataclasses.fields(partition)
        }
    return tree


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _value(node: Any) -> Any:
    # Parts of the tree are made only when somebody looks there.
    return node() if isinstance(node, Callable) else node  # type: ignore[arg-type]


def _is_folder(node: Any) -> bool:
    return isinstance(node, dict)


def _expand(node: Any) -> Any:
    node = _value(node)
    if isinstance(node, dict):
        return {name: _expand(child) for name, child in node.items()}
    return node
