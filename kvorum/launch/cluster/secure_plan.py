"""The security of `kvorum dev --secure` and `kvorum init --secure`: certificates, listeners, users.

Nodes know each other by certificates (mutual TLS). Clients log in over SASL_SSL with SCRAM-SHA-512.
The super users are the nodes and the first user, `admin`. ACLs are on. All secrets lie in a folder
that its owner alone may read.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import random
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvorum.broker.sasl.core.jaas import SCRAM_MODULE, parse_jaas
from kvorum.broker.sasl.core.scram import HASHES, MECHANISMS, derived_keys
from kvorum.launch.config.access import STANDARD_AUTHORIZER
from kvorum.metadata.controller.decide.scram import ITERATIONS_MIN
from kvorum.metadata.image.records import ScramCredential
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.text import PORT_MAX, address_text

FOLDER = "secrets"
ADMIN = "admin"
ADMIN_FILE = "admin.properties"
CA_FILE = "ca.pem"
MECHANISM = "SCRAM-SHA-512"
CLIENTS, NODES = "CLIENTS", "NODES"
"""Listeners of a broker: for clients, and for the other brokers."""
NODES_PORT_SHIFT = 200
"""Distance from a broker's port for clients to its port for brokers."""
CERTIFICATE_DAYS = 365
_SALT_BYTES = 24
_PASSWORD_BYTES = 24
_JAAS = "sasl.jaas.config"
_LISTS = {"super.users": ";", "sasl.enabled.mechanisms": ","}
"""Properties with several values, and what separates them."""


def admin_file(data_dir: str) -> str:
    """Kafka's client properties of the first user."""
    return os.path.join(data_dir, FOLDER, ADMIN_FILE)


def security_properties(folder: str, name: str, nodes: Sequence[str]) -> dict[str, str]:
    """The properties of one node.

    folder: of the secrets.
    nodes: the names of all, which are super users.
    """
    common = {
        "listener.security.protocol.map": f"CONTROLLER:SSL,{CLIENTS}:SASL_SSL,{NODES}:SSL",
        "listener.name.controller.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": os.path.join(folder, f"{name}.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": os.path.join(folder, CA_FILE),
        # A certificate of CN=broker-101 is that of the user broker-101.
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "kvorum.controller.principals": "User:controller-{id}",
        "kvorum.broker.principals": "User:broker-{id}",
        "super.users": ";".join(f"User:{user}" for user in (*nodes, ADMIN)),
    }
    if name.startswith("controller-"):
        return common
    return common | {
        "inter.broker.listener.name": NODES,
        f"listener.name.{NODES.lower()}.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": MECHANISM,
    }


def with_security(settings: Mapping[str, Any], security: Mapping[str, str]) -> dict[str, Any]:
    """A node's settings with those of `security_properties`. Super users and mechanisms of both
    count. Raises ConfigError for a setting that would change another one of them."""
    found = dict(settings)
    for name, value in security.items():
        given = str(found.get(name, value))
        if name in _LISTS:
            separator = _LISTS[name]
            parts = [part.strip() for part in f"{value}{separator}{given}".split(separator)]
            found[name] = separator.join(dict.fromkeys(filter(None, parts)))
        elif given == value:
            found[name] = value
        else:
            raise ConfigError(
                f"{name}={given} does not go with --secure, which writes {name}={value}: leave "
                "one of them out"
            )
    return found


def check_listeners(places: Iterable[tuple[str, str, int]]) -> None:
    """Raise ConfigError if two listeners of a secure cluster have one address. places: name, host
    and port of each node; a broker listens at NODES_PORT_SHIFT above its port too."""
    taken: dict[tuple[str, int], str] = {}
    for name, host, port in places:
        of_node = {port: "CONTROLLER" if name.startswith("controller-") else CLIENTS}
        if not name.startswith("controller-"):
            of_node[port + NODES_PORT_SHIFT] = NODES
        for each, listener in of_node.items():
            if each > PORT_MAX:
                raise ConfigError(
                    f"the listener {listener} of {name} would get port {each}, above {PORT_MAX}: "
                    f"give the broker a port up to {PORT_MAX - NODES_PORT_SHIFT}"
                )
            said = f"{name} ({listener})"
            other = taken.setdefault((host, each), said)
            if other != said:
                raise ConfigError(
                    f"{other} and {said} would both listen on {address_text(host, each)}: a "
                    f"broker's listener {NODES} is {NODES_PORT_SHIFT} above its port; move --port "
                    "or --controller-port"
                )


def prepare_secrets(
    data_dir: str, nodes: Mapping[str, Sequence[str]], *, has_users: bool = False
) -> None:
    """Make what is missing of the certificates and of the first user's properties.

    nodes: by name the hosts of each, beside those of this machine.
    has_users: the cluster has its first metadata, so a new password would be none of a user's.
    Raises ConfigError, OSError.
    """
    folder = os.path.join(data_dir, FOLDER)
    path = admin_file(data_dir)
    if has_users and not os.path.exists(path):
        raise ConfigError(
            f"{path} is missing, and a new one would have a password that the cluster does not "
            f"know: put it back, or remove {data_dir} with all its data to begin anew"
        )
    make_node_certificates(data_dir, nodes, users=(ADMIN,), may_begin=True)
    if not os.path.exists(path):
        part = f"{path}.part"
        with open(part, "w", encoding="utf-8") as file:
            file.write(_admin_properties(folder, secrets.token_urlsafe(_PASSWORD_BYTES)))
        os.replace(part, path)


def make_node_certificates(
    data_dir: str,
    nodes: Mapping[str, Sequence[str]],
    *,
    users: Sequence[str] = (),
    may_begin: bool = False,
) -> None:
    """Make the missing certificates.

    nodes: as for `prepare_secrets`.
    may_begin: make a CA, too.
    Raises ConfigError, also for a certificate that is there and has expired or is of another CA,
    OSError.
    """
    # `cryptography` takes a tenth of a second to import.
    from kvorum.launch.cluster.dev_certificate_files import (
        CertificateRequest,
        make_certificates,
        renewal,
    )

    folder = os.path.join(data_dir, FOLDER)
    now = datetime.datetime.now(datetime.UTC)
    requests = [
        CertificateRequest(nodes=(name,), hosts=hosts, days=CERTIFICATE_DAYS, may_begin=may_begin)
        for name, hosts in nodes.items()
    ]
    if users:
        requests.append(
            CertificateRequest(nodes=(), users=users, days=CERTIFICATE_DAYS, may_begin=may_begin)
        )
    made = [each for request in requests for each in make_certificates(folder, request, now)]
    bad = [each for each in made if each.ends <= now or not each.is_own]
    if bad:
        command = renewal(
            folder,
            [(each.kind, each.name) for each in bad],
            hosts=[host for each in bad for host in nodes.get(each.name, ())],
            days=CERTIFICATE_DAYS,
        )
        if not bad[0].is_own:
            raise ConfigError(
                f"the certificate in {bad[0].file} is of another CA than that in "
                f"{os.path.join(folder, CA_FILE)}: put back the file that was replaced, or "
                f"renew it with {command}"
            )
        raise ConfigError(
            f"the certificate in {bad[0].file} was valid until {bad[0].ends:%Y-%m-%d}; renew it "
            f"with {command}"
        )


def _admin_properties(folder: str, password: str) -> str:
    lines = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        _JAAS: f'{SCRAM_MODULE} required username="{ADMIN}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": os.path.join(folder, CA_FILE),
        # For commands that talk to controllers, which know their callers by certificates.
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": os.path.join(folder, f"{ADMIN}.pem"),
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def first_credential(data_dir: str, rng: random.Random) -> ScramCredential:
    """The credential of the first user, for the cluster's first metadata. Raises ConfigError."""
    path = admin_file(data_dir)
    try:
        with open(path, encoding="utf-8") as file:
            found = dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)
        password = parse_jaas(path, found[_JAAS]).options["password"]
    except (OSError, KeyError) as error:
        raise ConfigError(f"{path} has no password of {ADMIN}: {error}") from error
    hash_name = HASHES[MECHANISM]
    salt = rng.randbytes(_SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, ITERATIONS_MIN)
    stored_key, server_key = derived_keys(hash_name, salted)
    return ScramCredential(
        ADMIN, MECHANISMS[MECHANISM], ITERATIONS_MIN, salt, stored_key, server_key
    )
