"""Users of a secure cluster under a test: who may log in, and what each may do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from kvorum.chaos.live.host.node_requests import METADATA, Call, NodeRequests
from kvorum.chaos.live.host.processes import wait_until
from kvorum.chaos.live.systems.protocol import Node, System, running_brokers
from kvorum.chaos.live.users import allow, as_user, create_user, new_password, remove_user
from kvorum.runtime.errors import KvorumError

ADMIN = "admin"
"""The cluster's first user, who may do everything."""
_TIMEOUT_MS = 30_000
_LOOK_TIMEOUT_MS = 5_000
_DESCRIBE_ACLS = Call(key=29, name="describe_acls", version=3)
_ANY, _MATCH_ANY = 1, 1
_RESOURCES = {
    "topic": "TOPIC",
    "group": "GROUP",
    "transactional_id": "TRANSACTIONAL_ID",
    "cluster": "BROKER",
}
"""A word of `grant` -> the type in librdkafka's words."""
_CLUSTER = "kafka-cluster"


class Users:
    """The users that a test has made. Each method returns when every running broker knows of the
    change."""

    def __init__(self, system: System, admin: Callable[[], Any]) -> None:
        self._system = system
        self._admin = admin
        self._passwords: dict[str, str] = {}

    def names(self) -> list[str]:
        """The users of the test; the cluster's first user, `admin`, is none of them."""
        return sorted(self._passwords)

    def create(self, name: str, password: str = "") -> str:
        """Create a user, or give it another password; returns the password, a new one by default.
        Raises KvorumError."""
        if name == ADMIN:
            raise KvorumError(f"user {ADMIN} is the cluster's own; choose another name")
        chosen = password or new_password()
        create_user(self._admin(), name, chosen)
        self._passwords[name] = chosen
        for node in running_brokers(self._system):
            address = as_user(node.listener, name, chosen)
            wait_until(
                lambda address=address: _lets_in(address),  # type: ignore[misc]
                timeout_ms=_TIMEOUT_MS,
                what=f"{node.name} knows user {name} and its password",
            )
        return chosen

    def address(self, name: str) -> str:
        """The bootstrap addresses with that user's login. Raises KvorumError for an unknown one."""
        bootstrap = self._system.bootstrap()
        if name == ADMIN:
            return bootstrap
        if name not in self._passwords:
            known = ", ".join([ADMIN, *self.names()])
            raise KvorumError(f"no user is named {name!r}; there are {known}: create it first")
        return as_user(bootstrap, name, self._passwords[name])

    def allow(
        self, name: str, operations: Sequence[str], kind: str, resource: str, *, is_prefixed: bool
    ) -> None:
        """Allow operations, by Kafka's names, on a topic, group, transactional_id or the cluster.
        Raises KvorumError."""
        words = [operation.upper().replace("-", "_") for operation in operations]
        named = _CLUSTER if kind == "cluster" else resource
        rights = [(_RESOURCES[kind], named, words)]
        try:
            allow(self._admin(), name, rights, is_prefixed=is_prefixed)
        except KeyError as error:
            raise KvorumError(f"{error} is no operation of an ACL; READ is one") from error
        for node in running_brokers(self._system):
            wait_until(
                lambda node=node: _knows(node, name, named, len(set(words))),  # type: ignore[misc]
                timeout_ms=_TIMEOUT_MS,
                what=f"{node.name} knows the rights of user {name}",
            )

    def clear(self) -> None:
        """Delete the users of the test with their rights. Raises KvorumError."""
        for name in self.names():
            remove_user(self._admin(), name)
            del self._passwords[name]


def _lets_in(address: str) -> bool:
    values = {
        "topics": [],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    try:
        with closing(NodeRequests(address, timeout_ms=_LOOK_TIMEOUT_MS)) as peer:
            peer.ask(METADATA, values)
    except OSError:
        return False
    return True


def _knows(node: Node, user: str, resource: str, count: int) -> bool:
    """True if a broker has so many ACLs, or more, of a user on a resource."""
    values = {
        "resource_type_filter": _ANY,
        "resource_name_filter": resource,
        "pattern_type_filter": _MATCH_ANY,
        "principal_filter": f"User:{user}",
        "host_filter": None,
        "operation": _ANY,
        "permission_type": _ANY,
    }
    try:
        with closing(NodeRequests(node.listener, timeout_ms=_LOOK_TIMEOUT_MS)) as peer:
            answer = peer.ask(_DESCRIBE_ACLS, values)
    except OSError:
        return False
    return sum(len(found.acls) for found in answer.resources) >= count
