"""`kvorum init --add-scram`: the first users of a new cluster (KIP-900)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
from pathlib import Path

import pytest

from kvorum.broker.sasl.core.client import ScramClient
from kvorum.broker.sasl.core.exchange import AuthenticationFailed
from kvorum.broker.sasl.core.scram import MECHANISMS, Credential, ScramExchange
from kvorum.launch.cluster.add_scram import has_password, parse_add_scram
from kvorum.launch.directories.bootstrap_records import read_bootstrap_records
from kvorum.metadata.image.records import FeatureLevel, Record, ScramCredential
from kvorum.runtime.async_disk import OsAsyncDisk
from kvorum.runtime.errors import ConfigError
from tests.command import kvorum
from tests.test_metadata.worlds import World

SECRET = "of nobody else"
SALT = base64.b64encode(b"a salt").decode()


def parsed(*texts: str, typed: str = "") -> tuple[ScramCredential, ...]:
    return parse_add_scram(texts, ask=lambda user: typed, rng=random.Random(1))


def lets_in(credential: ScramCredential, mechanism: str, password: str) -> bool:
    """True if the credential lets a client with this password log in."""
    known = Credential(
        salt=credential.salt, iterations=credential.iterations,
        stored_key=credential.stored_key, server_key=credential.server_key,
    )  # fmt: skip
    server = ScramExchange(mechanism, {credential.user: known}.get, "server")
    client = ScramClient(mechanism, credential.user, password, "client")
    token: bytes | None = client.step(b"")
    assert token is not None
    answer = server.step(token).answer
    token = client.step(answer)
    assert token is not None
    try:
        client.step(server.step(token).answer)
    except AuthenticationFailed:
        return False
    return client.is_over


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_password_of_a_credential_logs_in_and_no_other(mechanism: str) -> None:
    (credential,) = parsed(f"{mechanism}=[name=alice,password={SECRET},iterations=8192]")
    assert (credential.user, credential.mechanism) == ("alice", MECHANISMS[mechanism])
    assert credential.iterations == 8192
    assert lets_in(credential, mechanism, SECRET)
    assert not lets_in(credential, mechanism, "another")


def test_a_password_may_come_from_a_file_or_be_typed(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}, with a comma\n")
    (of_file,) = parsed(f"SCRAM-SHA-256=[name=alice,password-file={file}]")
    assert lets_in(of_file, "SCRAM-SHA-256", f"{SECRET}, with a comma")
    (typed,) = parsed("SCRAM-SHA-256=[name=alice]", typed=SECRET)
    assert lets_in(typed, "SCRAM-SHA-256", SECRET)
    assert typed.iterations == 4096
    assert of_file.salt != b""


def test_a_salted_password_is_taken_with_its_salt() -> None:
    salted = hashlib.pbkdf2_hmac("sha256", SECRET.encode(), b"a salt", 5000)
    text = base64.b64encode(salted).decode()
    (credential,) = parsed(
        f'SCRAM-SHA-256=[name="alice",salt="{SALT}",saltedpassword="{text}",iterations=5000]'
    )
    assert credential.user == "alice"
    assert lets_in(credential, "SCRAM-SHA-256", SECRET)


def test_salts_differ_from_user_to_user() -> None:
    of_two = parsed(*(f"SCRAM-SHA-256=[name={user},password={SECRET}]" for user in "ab"))
    assert len({credential.salt for credential in of_two}) == 2
    assert len({credential.stored_key for credential in of_two}) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must begin with"),
        ("SCRAM-SHA-1=[name=a,password=of nobody else]", "must begin with"),
        ("PLAIN=[name=a,password=of nobody else]", "must begin with"),
        ("SCRAM-SHA-256=name=a,password=of nobody else", "brackets"),
        ("SCRAM-SHA-256=[password=of nobody else]", "has no name=USER"),
        ("SCRAM-SHA-256=[name=,password=of nobody else]", "has no name=USER"),
        ("SCRAM-SHA-256=[name=a,password=]", "the password is empty"),
        ("SCRAM-SHA-256=[name=a,password=x,of nobody else]", "password-file=FILE"),
        ("SCRAM-SHA-256=[name=a,name=b,password=of nobody else]", "each key once"),
        ("SCRAM-SHA-256=[name=a,passwort=of nobody else]", "KEY=VALUE"),
        ("SCRAM-SHA-256=[name=a,password=x,password-file=y]", "give one of them"),
        ("SCRAM-SHA-256=[name=a,password=x,iterations=4095]", "iterations=4095 must lie between"),
        ("SCRAM-SHA-256=[name=a,password=x,iterations=16385]", "must lie between"),
        ("SCRAM-SHA-256=[name=a,password=x,iterations=many]", "must lie between"),
        ("SCRAM-SHA-256=[name=a,password=x,salt=_]", "salt is not base64"),
        ("SCRAM-SHA-256=[name=a,password=x,salt=]", "the salt is empty"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YQ==]", "needs its salt"),
        ("SCRAM-SHA-256=[name=a,salt=YQ==,saltedpassword=YQ==]", "not those of a hash"),
        ("SCRAM-SHA-256=[name=a,password-file=/none/here]", "cannot read /none/here"),
    ],
)
def test_what_is_no_credential_is_refused_without_showing_a_password(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match="--add-scram") as refused:
        parsed(text)
    assert words in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_user_has_one_credential_of_a_mechanism() -> None:
    one = "SCRAM-SHA-256=[name=a,password=x]"
    with pytest.raises(ConfigError, match="two credentials of a mechanism"):
        parsed(one, one)
    assert len(parsed(one, "SCRAM-SHA-512=[name=a,password=x]")) == 2


def test_a_password_within_the_text_is_seen() -> None:
    assert has_password("SCRAM-SHA-256=[name=a,password=x]")
    assert has_password("SCRAM-SHA-256=[name=a, saltedpassword=x]")
    assert not has_password("SCRAM-SHA-256=[name=a,password-file=x]")
    assert not has_password("SCRAM-SHA-256=[name=password]")


def first_records(folder: Path, name: str) -> tuple[Record, ...]:
    path = str(folder / "data" / name / "__cluster_metadata-0")
    return asyncio.run(read_bootstrap_records(OsAsyncDisk(), path))


def test_init_gives_every_controller_the_same_first_users(tmp_path: Path) -> None:
    folder, file = tmp_path / "cluster", tmp_path / "password"
    file.write_text(SECRET)
    scram = ("--add-scram", f"SCRAM-SHA-512=[name=alice,password-file={file}]")
    more = ("--add-scram", "SCRAM-SHA-256=[name=bob,password=x]")
    code, _, error = kvorum("init", folder, *scram, *more)
    assert code == 0, error
    assert "other users of this machine can read command lines" in error
    of_each = [first_records(folder, f"controller-{number}") for number in (1, 2, 3)]
    assert of_each[0] == of_each[1] == of_each[2]
    users = [(r.user, r.mechanism) for r in of_each[0] if isinstance(r, ScramCredential)]
    assert users == [("alice", 2), ("bob", 1)]
    for path in folder.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


def test_init_says_nothing_of_passwords_in_files(tmp_path: Path) -> None:
    folder, file = tmp_path / "cluster", tmp_path / "password"
    file.write_text(SECRET)
    scram = ("--add-scram", f"SCRAM-SHA-512=[name=alice,password-file={file}]")
    code, _, error = kvorum("init", folder, *scram)
    assert (code, error) == (0, "")
    # Without a terminal nobody can type the password.
    code, _, error = kvorum("init", tmp_path / "other", "--add-scram", "SCRAM-SHA-512=[name=a]")
    assert code == 2
    assert "give password-file=FILE" in error


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--static"], "does not go with --static"),
        (["--set", "metadata.version.max=27"], "needs metadata.version 28"),
    ],
)
def test_a_cluster_that_cannot_have_users_is_refused_before_anything_is_written(
    tmp_path: Path, more: list[str], words: str
) -> None:
    folder = tmp_path / "cluster"
    code, _, error = kvorum(
        "init", folder, "--add-scram", "SCRAM-SHA-512=[name=a,password=x]", *more
    )
    assert code == 2
    assert words in error
    assert not folder.exists()


def test_a_bootstrap_checkpoint_without_records_has_none(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    assert kvorum("init", folder)[0] == 0
    assert first_records(folder, "controller-1") == ()
    assert first_records(tmp_path, "none") == ()


def test_the_first_decision_of_a_new_cluster_has_its_first_users_and_no_later_one() -> None:
    credentials = parsed("SCRAM-SHA-512=[name=alice,password=x]")
    world = World(brokers=())
    controller = world.controller
    controller.first_records = credentials
    # This world has metadata already (feature levels), so its first users are not written.
    assert controller.begin() == ()
    assert "alice" not in world.image.scram_credentials


def test_the_levels_of_a_new_cluster_come_before_its_users() -> None:
    from kvorum.metadata.controller.core.controller import Controller, ControllerConfig

    credentials = parsed("SCRAM-SHA-512=[name=alice,password=x]")
    controller = Controller(ControllerConfig(), cluster_id="c", rng=random.Random(0))
    controller.first_records = credentials
    controller.claim(1, 0, 0)
    records = controller.begin()
    assert records[-1:] == credentials
    assert {type(record) for record in records[:-1]} == {FeatureLevel}
    image = controller.speculative
    assert image is not None
    assert set(image.scram_credentials) == {"alice"}
