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
from collections.abc import Mapping, Sequence

from kvorum.broker.sasl.jaas import SCRAM_MODULE, parse_jaas
from kvorum.broker.sasl.scram import HASHES, MECHANISMS, derived_keys
from kvorum.launch.access import STANDARD_AUTHORIZER
from kvorum.metadata.controller.decide.scram import ITERATIONS_MIN
from kvorum.metadata.image.records import ScramCredential
from kvorum.runtime.errors import ConfigError

FOLDER = "secrets"
ADMIN = "admin"
ADMIN_FILE = "admin.properties"
MECHANISM = "SCRAM-SHA-512"
CLIENTS, NODES = "CLIENTS", "NODES"
"""Listeners of a broker: for clients, and for the other brokers."""
NODES_PORT_SHIFT = 200
"""Distance from a broker's port for clients to its port for brokers."""
CERTIFICATE_DAYS = 365
_SALT_BYTES = 24
_PASSWORD_BYTES = 24
_JAAS = "sasl.jaas.config"


def admin_file(data_dir: str) -> str:
    """Kafka's client properties of the first user."""
    return os.path.join(data_dir, FOLDER, ADMIN_FILE)


def security_properties(folder: str, name: str, nodes: Sequence[str]) -> dict[str, str]:
    """The properties of one node. folder: of the secrets. nodes: the names of all, which are super
    users."""
    common = {
        "listener.security.protocol.map": f"CONTROLLER:SSL,{CLIENTS}:SASL_SSL,{NODES}:SSL",
        "listener.name.controller.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": os.path.join(folder, f"{name}.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": os.path.join(folder, "ca.pem"),
        # A certificate of CN=broker-101 is that of the user broker-101.
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": ";".join(f"User:{user}" for user in (*nodes, ADMIN)),
    }
    if name.startswith("controller-"):
        return common
    return common | {
        "inter.broker.listener.name": NODES,
        f"listener.name.{NODES.lower()}.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": MECHANISM,
    }


def prepare_secrets(data_dir: str, nodes: Mapping[str, Sequence[str]]) -> None:
    """Make what is missing of the certificates and of the first user's properties. nodes: by name
    the hosts of each, beside those of this machine. Raises ConfigError, OSError."""
    # `cryptography` takes a tenth of a second to import.
    from kvorum.launch.dev_certificate_files import Request, make_certificates

    folder = os.path.join(data_dir, FOLDER)
    now = datetime.datetime.now(datetime.UTC)
    requests = [
        Request(nodes=(name,), hosts=hosts, days=CERTIFICATE_DAYS) for name, hosts in nodes.items()
    ]
    requests.append(Request(nodes=(), users=(ADMIN,), days=CERTIFICATE_DAYS))
    made = [each for request in requests for each in make_certificates(folder, request, now)]
    over = [each for each in made if each.ends <= now]
    if over:
        names = " ".join(f"--{each.kind} {each.name}" for each in over)
        raise ConfigError(
            f"the certificate in {over[0].file} was valid until {over[0].ends:%Y-%m-%d}; renew it "
            f"with kvorum certs dev {folder} --force --days {CERTIFICATE_DAYS} {names}"
        )
    path = admin_file(data_dir)
    if not os.path.exists(path):
        part = f"{path}.part"
        with open(part, "w", encoding="utf-8") as file:
            file.write(_admin_properties(folder, secrets.token_urlsafe(_PASSWORD_BYTES)))
        os.replace(part, path)


def _admin_properties(folder: str, password: str) -> str:
    lines = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        _JAAS: f'{SCRAM_MODULE} required username="{ADMIN}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": os.path.join(folder, "ca.pem"),
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
