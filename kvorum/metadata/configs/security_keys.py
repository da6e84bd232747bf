"""The properties of a broker's listeners, logins, certificates, tokens and access, with Apache
Kafka's names. A running broker takes over those of certificates; the others are read at its start.
"""

from __future__ import annotations

from kvorum.metadata.configs.model import ConfigType

_INT, _LONG, _STRING = ConfigType.INT, ConfigType.LONG, ConfigType.STRING
_PASSWORD = ConfigType.PASSWORD
_LIST = ConfigType.LIST

#: Name, type, default and documentation.
SECURITY: tuple[tuple[str, ConfigType, str | None, str], ...] = (
    (
        "listener.security.protocol.map",
        _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "name:protocol,...: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL for each listener; a "
        "protocol's own name needs no entry.",
    ),
    (
        "inter.broker.listener.name",
        _STRING,
        None,
        "The listener that brokers use among themselves; by default PLAINTEXT, or the only one.",
    ),
    (
        "security.inter.broker.protocol",
        _STRING,
        "",
        "The name of that listener, if it is the name of its protocol.",
    ),
    (
        "sasl.mechanism.inter.broker.protocol",
        _STRING,
        "",
        "The mechanism by which brokers log in at each other.",
    ),
    (
        "ssl.endpoint.identification.algorithm",
        _STRING,
        "https",
        "https: a certificate must name the host. Empty: it need not.",
    ),
    (
        "sasl.enabled.mechanisms",
        _LIST,
        "",
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, with commas between them.",
    ),
    (
        "sasl.server.max.receive.size",
        _INT,
        "524288",
        "The largest request of a client that is not authenticated yet.",
    ),
    (
        "connections.max.reauth.ms",
        _LONG,
        "0",
        "After this time a client must authenticate again; 0: never.",
    ),
    (
        "delegation.token.secret.key",
        _PASSWORD,
        None,
        "The key of delegation tokens, the same on every node; without it there are none.",
    ),
    ("sasl.oauthbearer.clock.skew.seconds", _INT, "30", "Between a token's issuer and the broker."),
    ("sasl.oauthbearer.expected.audience", _LIST, "", "One of these is in the token's aud."),
    ("sasl.oauthbearer.expected.issuer", _STRING, None, "The token's iss; empty: any."),
    (
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        _LONG,
        "3600000",
        "Between two fetches of the issuer's keys.",
    ),
    (
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        _LONG,
        "10000",
        "The longest pause after a failed fetch.",
    ),
    (
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        _LONG,
        "100",
        "The pause after the first failed fetch.",
    ),
    (
        "sasl.oauthbearer.jwks.endpoint.url",
        _STRING,
        None,
        "The issuer's key set (JWKS), file:, https: or http:.",
    ),
    ("sasl.oauthbearer.scope.claim.name", _STRING, "scope", "The claim with a token's scopes."),
    ("sasl.oauthbearer.sub.claim.name", _STRING, "sub", "The claim with a token's user."),
    ("kvorum.audit.file", _STRING, "", "File of the audit log; empty: the node's log has it."),
    ("ssl.keystore.type", _STRING, "JKS", "PEM; no other is served."),
    ("ssl.keystore.location", _STRING, None, "File with key, certificate and its chain."),
    ("ssl.keystore.certificate.chain", _PASSWORD, None, "The chain as text, in place of the file."),
    ("ssl.keystore.key", _PASSWORD, None, "The key as text, in place of the file."),
    ("ssl.key.password", _PASSWORD, None, "The password of the key."),
    ("ssl.truststore.type", _STRING, "JKS", "PEM; no other is served."),
    ("ssl.truststore.location", _STRING, None, "File with the CAs of clients' certificates."),
    ("ssl.truststore.certificates", _PASSWORD, None, "Those CAs as text, in place of the file."),
    (
        "ssl.client.auth",
        _STRING,
        "none",
        "Whether clients need a certificate: none, requested, required.",
    ),
    (
        "ssl.allow.dn.changes",
        ConfigType.BOOLEAN,
        "false",
        "Whether a running node takes a certificate with another name.",
    ),
    (
        "ssl.allow.san.changes",
        ConfigType.BOOLEAN,
        "false",
        "Whether a running node takes a certificate that lacks hosts of the one before.",
    ),
    ("ssl.enabled.protocols", _LIST, "TLSv1.2,TLSv1.3", "Versions of TLS."),
    (
        "ssl.principal.mapping.rules",
        _STRING,
        "DEFAULT",
        "Rules that make a user of a certificate's name.",
    ),
    (
        "connection.failed.authentication.delay.ms",
        _INT,
        "100",
        "Delay of the answer to a client that failed to authenticate.",
    ),
    (
        "authorizer.class.name",
        _STRING,
        "",
        "Kafka's StandardAuthorizer, which answers by ACLs; empty: everybody may do everything.",
    ),
    ("super.users", _STRING, "", "Principals that may do everything, with ; between them."),
    (
        "kvorum.controller.principals",
        _STRING,
        "",
        "The principal of each controller, with {id} for its id; no other may send in its name.",
    ),
    (
        "kvorum.broker.principals",
        _STRING,
        "",
        "The same for brokers, whose followers' fetches are bound to it, too.",
    ),
    (
        "allow.everyone.if.no.acl.found",
        ConfigType.BOOLEAN,
        "false",
        "Whether a resource that no ACL names is open to everybody.",
    ),
)

CERTIFICATE_KEYS = (
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.key.password",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.type",
)
"""Properties of listeners that can be changed while a broker runs: as dynamic configs of that
broker, not of all brokers."""
