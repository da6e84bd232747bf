"""Logins of every client family: who logs in how, on which listener, and who is refused.

A family's program is called with a file of `questions`: a JSON object per case. For each case it
sends one record and reads the topic by a group, and prints a JSON line {"case", "outcome"}. The
outcome is "read" if the record came back, else the client's error: its name, and what it says of
the broker's answer. So the same programs run against Kvorum and against Apache Kafka.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.certificates import Authority
from tests.clients.families import FAMILIES, ROOT, Family
from tests.tokens import AUDIENCE, ISSUER, Issuer

RECORDED = Path(__file__).with_name("kafka.json")
RUN_TIMEOUT_S = 240.0
OPEN, CLOSED = "open", "closed"
GROUPS = "group-"
"""Begins the names of the groups that alice may use; each family has its own."""
LISTENERS = ("ADMIN", "LOGIN", "MUTUAL", "BOTH", "EXPIRED")
"""In the order of their ports: the administrator's, SASL, mutual TLS, SASL over TLS, and TLS with
a certificate that has expired."""
PASSWORD, SCRAM_PASSWORD = "plain secret", "pencil"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_alice="{PASSWORD}" user_bob="{PASSWORD}";'
)
TOKEN_LOGIN = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="nobody";'
)
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """name; listener: one of LISTENERS; protocol: of the client, if it is not the listener's;
    mechanism, user, password: of SASL; token: its kind; ca and certificate: of `Papers`, "" for
    none; topic: which the client uses; is_group_open: alice may use its group."""

    name: str
    listener: str
    protocol: str = ""
    mechanism: str = ""
    user: str = "alice"
    password: str = SCRAM_PASSWORD
    token: str = ""
    ca: str = "ca"
    certificate: str = ""
    topic: str = OPEN
    is_group_open: bool = True


PROTOCOLS = {
    "ADMIN": "PLAINTEXT", "LOGIN": "SASL_PLAINTEXT", "MUTUAL": "SSL", "BOTH": "SASL_SSL",
    "EXPIRED": "SSL",
}  # fmt: skip
CASES = (
    Case(name="PLAIN", listener="LOGIN", mechanism="PLAIN", password=PASSWORD),
    Case(name="SCRAM-SHA-256", listener="LOGIN", mechanism="SCRAM-SHA-256"),
    Case(name="SCRAM-SHA-512", listener="LOGIN", mechanism="SCRAM-SHA-512"),
    Case(name="OAUTHBEARER", listener="LOGIN", mechanism="OAUTHBEARER", token="good"),
    Case(name="SCRAM over TLS", listener="BOTH", mechanism="SCRAM-SHA-512"),
    Case(name="mutual TLS", listener="MUTUAL", certificate="alice"),
    Case(name="a wrong password, PLAIN", listener="LOGIN", mechanism="PLAIN", password="wrong"),
    Case(
        name="a wrong password, SCRAM", listener="LOGIN", mechanism="SCRAM-SHA-512",
        password="wrong",
    ),
    Case(
        name="an unknown user, SCRAM", listener="LOGIN", mechanism="SCRAM-SHA-256", user="mallory"
    ),
    Case(name="a mechanism that is off", listener="BOTH", mechanism="PLAIN", password=PASSWORD),
    Case(name="a forged token", listener="LOGIN", mechanism="OAUTHBEARER", token="forged"),
    Case(name="an unknown CA of the broker", listener="BOTH", mechanism="SCRAM-SHA-512",
         ca="stranger"),
    Case(name="an expired certificate of the broker", listener="EXPIRED"),
    Case(name="no certificate of the client", listener="MUTUAL"),
    Case(name="an unknown CA of the client", listener="MUTUAL", certificate="stranger"),
    Case(name="no ACL for the topic", listener="LOGIN", mechanism="PLAIN", password=PASSWORD,
         topic=CLOSED),
    Case(name="no ACL for the group", listener="LOGIN", mechanism="PLAIN", password=PASSWORD,
         is_group_open=False),
)  # fmt: skip


class Papers:
    """Certificates, keys and tokens of all cases, as files in a folder."""

    def __init__(self, folder: Path) -> None:
        ours, theirs = Authority(folder / "ca"), Authority(folder / "stranger")
        self.server = ours.server("server.pem")
        self.expired = ours.server("expired.pem", is_expired=True)
        self.authorities = {"ca": ours.file, "stranger": theirs.file}
        self.certificates = {"alice": ours.client("alice"), "stranger": theirs.client("alice")}
        issuer = Issuer(time.time())
        self.keys = folder / "keys.json"
        self.keys.write_text(issuer.key_set())
        self.tokens = {"good": folder / "good.jwt", "forged": folder / "forged.jwt"}
        self.tokens["good"].write_text(issuer.token())
        self.tokens["forged"].write_text(issuer.tampered(sub="admin"))

    def question(self, case: Case, ports: Sequence[int], family: str) -> dict[str, str]:
        port = ports[LISTENERS.index(case.listener)]
        return {
            "name": case.name,
            "mechanism": case.mechanism,
            "user": case.user,
            "password": case.password,
            "topic": case.topic,
            "group": f"{GROUPS if case.is_group_open else 'closed-'}{family}",
            "bootstrap": f"127.0.0.1:{port}",
            "protocol": case.protocol or PROTOCOLS[case.listener],
            "ca": str(self.authorities[case.ca]),
            "certificate": str(self.certificates.get(case.certificate, "")),
            "token": str(self.tokens.get(case.token, "")),
        }

    def broker_properties(self, ports: Sequence[int]) -> dict[str, str]:
        """The properties of a broker, of Kvorum or of Apache Kafka, for all cases."""
        listeners = zip(LISTENERS, ports, strict=True)
        return {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()
            ),
            "inter.broker.listener.name": "ADMIN",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authorities["ca"]),
            "listener.name.expired.ssl.keystore.type": "PEM",
            "listener.name.expired.ssl.keystore.location": str(self.expired),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/,DEFAULT",
            "listener.name.login.sasl.enabled.mechanisms": (
                "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
            ),
            "listener.name.both.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.login.plain.sasl.jaas.config": PLAIN_LOGIN,
            **{
                f"listener.name.login.oauthbearer.sasl.oauthbearer.{key}": value
                for key, value in (
                    ("expected.audience", AUDIENCE), ("expected.issuer", ISSUER),
                    ("jwks.endpoint.url", f"file://{self.keys}"),
                )
            },
            **access_properties(),
        }  # fmt: skip


class Kcat(Family):
    name = "kcat"

    def missing(self) -> str:
        return "" if shutil.which("kcat") else "needs kcat"

    def logins_command(self, folder: Path) -> list[str]:
        return [sys.executable, "-m", "tests.clients.logins.by_kcat"]


CLIENTS = (*FAMILIES, Kcat())


def access_properties() -> dict[str, str]:
    return {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}


def outcomes(family: Family, papers: Papers, ports: Sequence[int], folder: Path) -> dict[str, Any]:
    """The outcome of each case, by its name. folder: for the file of questions and compiled
    programs.
    """
    questions = [papers.question(case, ports, family.name) for case in CASES]
    file = folder / f"{family.name}.json"
    file.write_text(json.dumps(questions))
    done = subprocess.run(
        [*family.logins_command(folder), str(file)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=RUN_TIMEOUT_S,
        env={**os.environ, **family.environment()},
        check=False,
    )
    said = f"{family.name}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    assert done.returncode == 0, said
    found = {line["case"]: line["outcome"] for line in _lines(done.stdout)}
    assert found.keys() == {question["name"] for question in questions}, said
    return found


def _lines(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def recorded() -> dict[str, dict[str, Any]]:
    """The outcomes recorded against Apache Kafka: by family, then by case."""
    outcomes: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text())["outcomes"]
    return outcomes
