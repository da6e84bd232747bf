"""Broker configs of Apache Kafka 4.4 that Kvorum does not obey.

Most are accepted without an effect, so that existing properties files and tools can be used; the
log names each with the reason. For some, that would be misleading, and they can only have the value
that changes nothing: a broker with a policy in its file must not create every topic. A test covers
all of Kafka's names. This module is imported only when a name is used that BROKER_CONFIGS lacks.
"""

from __future__ import annotations

import functools

from kvorum.metadata.configs.ignored_keys import IGNORED
from kvorum.metadata.configs.model import ConfigKey, ConfigType, Update

_PRINCIPALS = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
_UPDATES = {"dynamic": Update.DYNAMIC, "per-broker": Update.PER_BROKER}

_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"
_NO_JAVA = "as no class of Java is called: TLS is OpenSSL's, and logins are Kvorum's own"
_CLASS, _STRING = ConfigType.CLASS, ConfigType.STRING

#: Name, type, default, values without an effect, reason for refusing others, where it may be set.
_FIXED: tuple[tuple[str, ConfigType, str | None, tuple[str, ...], str, Update], ...] = (
    (
        "alter.config.policy.class.name",
        ConfigType.CLASS,
        None,
        ("",),
        "as no policy would be asked",
        Update.READ_ONLY,
    ),
    (
        "create.topic.policy.class.name",
        ConfigType.CLASS,
        None,
        ("",),
        "as no policy would be asked",
        Update.READ_ONLY,
    ),
    (
        "client.quota.callback.class",
        ConfigType.CLASS,
        None,
        ("",),
        "as quotas are those of the metadata log",
        Update.READ_ONLY,
    ),
    (
        "principal.builder.class",
        ConfigType.CLASS,
        _PRINCIPALS,
        (_PRINCIPALS, ""),
        "as a user is the name of the login or of the certificate",
        Update.PER_BROKER,
    ),
    (
        "group.streams.topology.description.plugin.class",
        ConfigType.CLASS,
        None,
        ("",),
        "as no plug-in is called",
        Update.READ_ONLY,
    ),
    (
        "config.providers",
        ConfigType.LIST,
        "",
        ("",),
        "as values are taken as they stand",
        Update.DYNAMIC,
    ),
    (
        "controller.quorum.auto.join.enable",
        ConfigType.BOOLEAN,
        "false",
        ("false",),
        "as a controller becomes a voter when an operator adds it",
        Update.READ_ONLY,
    ),
    (
        "process.roles",
        ConfigType.LIST,
        None,
        ("broker", "controller"),
        "as a node has one role: run a broker and a controller, each with a file of its own",
        Update.READ_ONLY,
    ),
    (
        "remote.log.storage.system.enable",
        ConfigType.BOOLEAN,
        "false",
        ("false",),
        "as logs have no remote tier",
        Update.READ_ONLY,
    ),
    (
        "transaction.two.phase.commit.enable",
        ConfigType.BOOLEAN,
        "false",
        ("false",),
        "as transactions end with their time-out",
        Update.READ_ONLY,
    ),
    # Restrictions, or other checks of clients, that nobody must believe in.
    ("sasl.client.callback.handler.class", _CLASS, None, ("",), _NO_JAVA, Update.READ_ONLY),
    ("sasl.login.callback.handler.class", _CLASS, None, ("",), _NO_JAVA, Update.READ_ONLY),
    ("sasl.login.class", _CLASS, None, ("",), _NO_JAVA, Update.READ_ONLY),
    (
        "sasl.oauthbearer.jwt.validator.class",
        _CLASS,
        _VALIDATOR,
        (_VALIDATOR, ""),
        _NO_JAVA,
        Update.READ_ONLY,
    ),
    ("sasl.server.callback.handler.class", _CLASS, None, ("",), _NO_JAVA, Update.READ_ONLY),
    ("security.providers", _STRING, None, ("",), _NO_JAVA, Update.READ_ONLY),
    (
        "ssl.cipher.suites",
        ConfigType.LIST,
        "",
        ("",),
        "as OpenSSL's own choice of cipher suites is served; ssl.enabled.protocols=TLSv1.3 leaves "
        "out the older ones",
        Update.PER_BROKER,
    ),
    ("ssl.engine.factory.class", _CLASS, None, ("",), _NO_JAVA, Update.PER_BROKER),
    (
        "ssl.protocol",
        _STRING,
        "TLSv1.3",
        ("TLSv1.3",),
        "as ssl.enabled.protocols alone has the versions of TLS",
        Update.PER_BROKER,
    ),
    ("ssl.provider", _STRING, None, ("",), _NO_JAVA, Update.PER_BROKER),
    ("ssl.secure.random.implementation", _STRING, None, ("",), _NO_JAVA, Update.PER_BROKER),
    ("ssl.trustmanager.algorithm", _STRING, "PKIX", ("PKIX",), _NO_JAVA, Update.PER_BROKER),
)


@functools.cache
def kafka_keys() -> dict[str, ConfigKey]:
    """The Kafka configs that BROKER_CONFIGS lacks, by name."""
    keys = {
        name: ConfigKey(
            name=name,
            type=kind,
            default=default,
            served=served,
            unserved=unserved,
            update=update,
            documentation="Taken at the value that changes nothing.",
        )
        for name, kind, default, served, unserved, update in _FIXED
    }
    for reason, lines in IGNORED:
        for line in filter(None, map(str.strip, lines.splitlines())):
            key = _ignored(line.split(), reason)
            keys[key.name] = key
    return keys


def _ignored(words: list[str], reason: str) -> ConfigKey:
    name, kind, default, *marks = words
    low = next((int(mark[2:]) for mark in marks if mark.startswith(">=")), None)
    return ConfigKey(
        name=name,
        type=ConfigType[kind],
        default={"-": None, '""': ""}.get(default, default),
        low=low,
        update=next((_UPDATES[mark] for mark in marks if mark in _UPDATES), Update.READ_ONLY),
        ignored=reason,
        documentation=f"Changes nothing: {reason}.",
    )
