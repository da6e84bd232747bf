"""Users of a secure cluster under test: their passwords and ACLs, by the Kafka protocol."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from kvorum.chaos.addresses import secured, security_at
from kvorum.chaos.live.host.node_requests import METADATA, NodeRequests
from kvorum.chaos.live.host.processes import wait_until
from kvorum.chaos.live.systems.protocol import System, running_brokers
from kvorum.chaos.workloads.clients import open_admin
from kvorum.runtime.errors import ErrorCode, KvorumError

LOAD_USER = "chaos-load"
_PASSWORD_BYTES = 24
_TIMEOUT_S = 20.0
_ITERATIONS = 4096
_KNOWN_TIMEOUT_MS = 30_000
_LOOK_TIMEOUT_MS = 5_000
_PROBED = "chaos-load-probe"
"""A topic that does not exist. A broker answers UNKNOWN_TOPIC_OR_PARTITION only to a user that may
describe it; other users get TOPIC_AUTHORIZATION_FAILED."""

_LOAD_RIGHTS: Sequence[tuple[str, str, Sequence[str]]] = (
    ("TOPIC", "*", ("READ", "WRITE", "DESCRIBE", "CREATE", "DELETE", "DESCRIBE_CONFIGS")),
    ("GROUP", "*", ("READ", "DESCRIBE", "DELETE", "DESCRIBE_CONFIGS")),
    ("TRANSACTIONAL_ID", "*", ("WRITE", "DESCRIBE")),
    ("BROKER", "kafka-cluster", ("IDEMPOTENT_WRITE",)),
)
"""Resource type and name in librdkafka's words, and the operations: BROKER is the cluster."""


def create_user(admin: Any, name: str, password: str) -> None:
    """Create a SCRAM-SHA-512 user, or give it another password. Raises KvorumError."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
    change = UserScramCredentialUpsertion(name, info, password.encode())
    answers = admin.alter_user_scram_credentials([change], request_timeout=_TIMEOUT_S)
    try:
        answers[name].result()
    except KafkaException as error:
        raise KvorumError(f"user {name} cannot be created: {error}") from error


def allow(
    admin: Any,
    user: str,
    rights: Sequence[tuple[str, str, Sequence[str]]],
    *,
    is_prefixed: bool = False,
) -> None:
    """Give a user rights from every host, in one change. rights: type, name and operations of each
    resource. Raises KvorumError."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AclBinding,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    pattern = ResourcePatternType.PREFIXED if is_prefixed else ResourcePatternType.LITERAL
    bindings = [
        AclBinding(
            ResourceType[kind],
            name,
            pattern,
            f"User:{user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for kind, name, operations in rights
        for operation in operations
    ]
    try:
        for answer in admin.create_acls(bindings, request_timeout=_TIMEOUT_S).values():
            answer.result()
    except KafkaException as error:
        raise KvorumError(f"user {user} cannot be given its rights: {error}") from error


def remove_user(admin: Any, name: str) -> None:
    """Delete a user's ACLs and its SCRAM-SHA-512 credential. Raises KvorumError."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
        ScramMechanism,
        UserScramCredentialDeletion,
    )

    everything = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        f"User:{name}",
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    deletion = UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_512)
    try:
        for answer in admin.delete_acls([everything], request_timeout=_TIMEOUT_S).values():
            answer.result()
        answers = admin.alter_user_scram_credentials([deletion], request_timeout=_TIMEOUT_S)
        answers[name].result()
    except KafkaException as error:
        raise KvorumError(f"user {name} cannot be deleted: {error}") from error


def new_password() -> str:
    """A password that nobody has to remember."""
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def as_user(address: str, name: str, password: str) -> str:
    """The address with the login of another user, and without a certificate of its own."""
    security = security_at(address)
    tls = None if security.tls is None else replace(security.tls, keystore="", key_password="")
    context = security.context
    if tls is not None:
        from kvorum.runtime.tls import client_context

        context = client_context(tls)
    named = replace(security, tls=tls, context=context, user=name, password=password)
    return secured(address, named)


def bootstrap_of_load(system: System) -> str:
    """The bootstrap addresses for the load of a run: on a secure cluster of its own, those of a
    user that is made here and has the rights of a load, and no others.

    Returns when every broker knows the user and its rights. Raises KvorumError, NotReached.
    """
    bootstrap = system.bootstrap()
    if system.name == "attached" or not security_at(bootstrap).mechanism:
        return bootstrap
    password = new_password()
    admin = open_admin(bootstrap)
    create_user(admin, LOAD_USER, password)
    allow(admin, LOAD_USER, _LOAD_RIGHTS)
    for node in running_brokers(system):
        address = as_user(node.listener, LOAD_USER, password)
        wait_until(
            lambda address=address: _may_describe(address),  # type: ignore[misc]
            timeout_ms=_KNOWN_TIMEOUT_MS,
            what=f"{node.name} knows the user {LOAD_USER} and its rights",
        )
    return as_user(bootstrap, LOAD_USER, password)


def _may_describe(address: str) -> bool:
    """True if a broker lets the user of an address in, and lets it describe every topic."""
    values = {
        "topics": [{"topic_id": None, "name": _PROBED}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    try:
        with closing(NodeRequests(address, timeout_ms=_LOOK_TIMEOUT_MS)) as peer:
            answer = peer.ask(METADATA, values)
    except OSError:
        return False
    return all(
        int(topic.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in answer.topics
    )
