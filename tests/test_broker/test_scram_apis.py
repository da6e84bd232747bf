"""AlterUserScramCredentials and DescribeUserScramCredentials, as librdkafka's clients call them."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.sasl.core.scram import derived_keys
from tests.test_broker.harness import DEADLINE_S, Harness
from tests.test_broker.raw_client import RawClient

SHA_256 = ScramMechanism.SCRAM_SHA_256
FEW = ScramCredentialInfo(SHA_256, 4095)
ENOUGH = ScramCredentialInfo(SHA_256, 4096)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("scram"), count=1)
    yield harness
    harness.close()


def test_librdkafka_sets_describes_and_removes_credentials(harness: Harness) -> None:
    admin = AdminClient({"bootstrap.servers": harness.bootstrap})

    def alter(change: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(DEADLINE_S)

    alter(UserScramCredentialUpsertion("alice", ENOUGH, b"secret", b"salt"))
    described = admin.describe_user_scram_credentials(["alice"])["alice"].result(DEADLINE_S)
    (info,) = described.scram_credential_infos
    assert (info.mechanism, info.iterations) == (SHA_256, 4096)
    everybody = admin.describe_user_scram_credentials(None).result(DEADLINE_S)
    assert list(everybody) == ["alice"]
    with pytest.raises(KafkaException) as refused:
        alter(UserScramCredentialUpsertion("bob", FEW, b"secret", b"salt"))
    assert refused.value.args[0].name() == "UNACCEPTABLE_CREDENTIAL"
    alter(UserScramCredentialDeletion("alice", SHA_256))
    with pytest.raises(KafkaException) as gone:
        admin.describe_user_scram_credentials(["alice"])["alice"].result(DEADLINE_S)
    assert gone.value.args[0].name() == "RESOURCE_NOT_FOUND"


def test_an_empty_salted_password_is_refused_and_spoils_no_other(harness: Harness) -> None:
    client = RawClient(harness.cluster.brokers[1].port)
    asked = [
        {
            "name": name,
            "mechanism": 1,
            "iterations": 4096,
            "salt": b"s",
            "salted_password": password,
        }
        for name, password in (("carol", b""), ("dave", b"p" * 32), ("carol", b"p" * 32))
    ]
    values = {"deletions": [{"name": "carol", "mechanism": 1}], "upsertions": asked}
    answer = client.call("alter_user_scram_credentials", 0, values)
    assert {row.user: row.error_code for row in answer.results} == {
        "dave": KioError.none, "carol": KioError.unacceptable_credential,
    }  # fmt: skip
    assert {row.user: row.error_message for row in answer.results} == {
        "dave": None, "carol": "The salted password must not be empty",
    }  # fmt: skip
    credentials = harness.cluster.controller.image.scram_credentials
    assert "dave" in credentials and "carol" not in credentials
    client.close()


def test_the_metadata_has_the_keys_of_the_rfc_and_no_salted_password(harness: Harness) -> None:
    admin = AdminClient({"bootstrap.servers": harness.bootstrap})
    change = UserScramCredentialUpsertion("carol", ENOUGH, b"pencil", b"some salt")
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(DEADLINE_S)
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", b"some salt", 4096)
    stored = harness.cluster.controller.image.scram_credentials["carol"][1]
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    assert stored.stored_key == hashlib.sha256(client_key).digest()
    assert stored.server_key == hmac.digest(salted, b"Server Key", "sha256")
    assert (stored.salt, stored.iterations) == (b"some salt", 4096)


def test_keys_are_those_of_the_example_in_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    stored_key, server_key = derived_keys("sha256", salted)
    assert len(stored_key) == 32
    auth = (
        "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        "s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,"
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    signature = hmac.digest(server_key, auth.encode(), "sha256")
    assert base64.b64encode(signature) == (b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
