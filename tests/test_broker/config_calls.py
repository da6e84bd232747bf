"""Requests about configs and quotas, and the parts of their answers that tests check."""

from __future__ import annotations

from typing import Any

from kvorum.runtime.clock import wall_ms
from kvorum.storage.format.batch import build_batch
from tests.test_broker.raw_client import RawClient, produce_values

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND = 0, 1, 2


def alter(client: RawClient, kind: int, name: str, *, version: int = 1, **sets: str) -> Any:
    configs = [
        {"name": key.replace("_", "."), "config_operation": SET, "value": value}
        for key, value in sets.items()
    ]
    return operate(client, kind, name, *configs, version=version)


def operate(
    client: RawClient, kind: int, name: str, *configs: dict, version: int = 1, dry: bool = False
) -> Any:
    answer = client.call("incremental_alter_configs", version, {
        "resources": [{"resource_type": kind, "resource_name": name, "configs": configs}],
        "validate_only": dry,
    })  # fmt: skip
    return answer.responses[0]


def replace(client: RawClient, kind: int, name: str, version: int = 2, **sets: str) -> Any:
    configs = [{"name": k.replace("_", "."), "value": v} for k, v in sets.items()]
    answer = client.call("alter_configs", version, {
        "resources": [{"resource_type": kind, "resource_name": name, "configs": configs}],
        "validate_only": False,
    })  # fmt: skip
    return answer.responses[0]


def describe(
    client: RawClient,
    kind: int,
    name: str,
    keys: Any = None,
    *,
    version: int = 4,
    synonyms: bool = True,
    documentation: bool = False,
) -> Any:
    answer = client.call("describe_configs", version, {
        "resources": [
            {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        ],
        "include_synonyms": synonyms, "include_documentation": documentation,
    })  # fmt: skip
    return answer.results[0]


def entry(client: RawClient, kind: int, name: str, key: str) -> Any:
    (found,) = describe(client, kind, name, [key]).configs
    return found


def synonyms_of(found: Any) -> list[tuple[str, str | None, int]]:
    return [(s.name, s.value, s.source) for s in found.synonyms]


def produce(
    client: RawClient, topic: str, value: bytes = b"x", *, timestamp_ms: int = -1, acks: int = -1
) -> Any:
    stamp = wall_ms() if timestamp_ms < 0 else timestamp_ms
    data = bytes(build_batch([(None, value)], timestamp_ms=stamp))
    answer = client.call("produce", 9, produce_values(topic, data, acks=acks))
    return answer.responses[0].partition_responses[0]


def alter_quotas(client: RawClient, *entries: Any, version: int = 1) -> Any:
    answer = client.call("alter_client_quotas", version, {
        "entries": [
            {
                "entity": [{"entity_type": t, "entity_name": n} for t, n in entity],
                "ops": [
                    {"key": key, "value": value or 0.0, "remove": value is None}
                    for key, value in ops.items()
                ],
            }
            for entity, ops in entries
        ],
        "validate_only": False,
    })  # fmt: skip
    return answer.entries


def describe_quotas(client: RawClient, *parts: Any, strict: bool = False, version: int = 1) -> Any:
    return client.call("describe_client_quotas", version, {
        "components": [{"entity_type": t, "match_type": m, "match": n} for t, m, n in parts],
        "strict": strict,
    })  # fmt: skip
