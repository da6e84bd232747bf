"""The throttle of a reassignment: configs of the brokers (rates) and of topics (replicas, KIP-73).

On the leaders' side the present replicas are throttled, on the followers' side those that are
added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvorum.chaos.addresses import joined
from kvorum.chaos.live.systems.protocol import NotObservable, System, running_brokers
from kvorum.chaos.workloads.clients import open_admin

_TIMEOUT_S = 2.0
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")

Key = tuple[str, int]
#: Of each partition: the ids of its present replicas, and of those that are added.
Moving = Mapping[Key, tuple[Sequence[int], Sequence[int]]]


class Throttle:
    """The throttle of one reassignment. `clear` takes off what `set` has put on."""

    def __init__(self, system: System, bytes_per_second: int) -> None:
        self._system = system
        self._rate = str(bytes_per_second)
        self._brokers: set[int] = set()
        self._topics: set[str] = set()

    def set(self, moving: Moving) -> None:
        """Raises NotObservable if a config cannot be set; `clear` is needed all the same."""
        admin = _admin(self._system)
        lists: dict[str, tuple[list[str], list[str]]] = {}
        for (topic, number), (present, added) in sorted(moving.items()):
            leaders, followers = lists.setdefault(topic, ([], []))
            leaders += [f"{number}:{broker}" for broker in present]
            followers += [f"{number}:{broker}" for broker in added]
            self._brokers |= {*present, *added}
        # The rates first: replicas that a topic lists are not throttled while no rate is set.
        for broker in self._up():
            _alter(admin, "BROKER", str(broker), dict.fromkeys(_RATES, self._rate))
        for topic, sides in lists.items():
            self._topics.add(topic)
            values = zip(_LISTS, map(",".join, sides), strict=True)
            _alter(admin, "TOPIC", topic, {key: value for key, value in values if value})

    def clear(self) -> None:
        """Raises NotObservable if a config cannot be removed. The rate of a broker that is down
        stays (`left`): only the broker itself can be asked to remove it."""
        admin = _admin(self._system)
        for topic in sorted(self._topics):
            _alter(admin, "TOPIC", topic, dict.fromkeys(_LISTS))
            self._topics.discard(topic)
        for broker in self._up():
            _alter(admin, "BROKER", str(broker), dict.fromkeys(_RATES))
            self._brokers.discard(broker)

    @property
    def left(self) -> tuple[int, ...]:
        """The brokers that `clear` has still to be called for. Without a topic's list of replicas
        their rates throttle nothing."""
        return tuple(sorted(self._brokers))

    @property
    def is_out_of_reach(self) -> bool:
        """True while a broker with a rate is down: `clear` could not take that rate off."""
        return len(self._up()) < len(self._brokers)

    def _up(self) -> list[int]:
        return sorted(self._brokers & {node.node_id for node in running_brokers(self._system)})


def _alter(admin: Any, kind: str, name: str, values: Mapping[str, str | None]) -> None:
    """Set the configs, or remove those whose value is None."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    entries: list[Any] = [
        ConfigEntry(
            key,
            value,
            incremental_operation=(
                AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            ),
        )
        for key, value in values.items()
    ]
    resource = ConfigResource(ResourceType[kind], name, incremental_configs=entries)
    try:
        altered = admin.incremental_alter_configs([resource], request_timeout=_TIMEOUT_S)
        altered[resource].result()
    except KafkaException as error:
        raise NotObservable(f"the throttle of {kind.lower()} {name}: {error}") from error


def _admin(system: System) -> Any:
    """A client that first asks the brokers that run, past their proxies."""
    direct = joined([node.listener for node in running_brokers(system)])
    return open_admin(direct or system.bootstrap())
