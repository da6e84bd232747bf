"""`kvorum users` through a broker and through a controller."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvorum.cli.user_credentials import new_credential
from kvorum.cli.users import client_properties
from kvorum.client.current import acting_as
from kvorum.client.security import read_properties, security_of
from kvorum.metadata.requests.scram_requests import SHA_256
from tests.command import kvorum
from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.polling import eventually

live = [pytest.mark.live, pytest.mark.timeout(120)]
SECRET = "correct horse battery staple"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
BOTH = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "scram-sha-512")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandMade]:
    """A broker with a listener for brokers, and CLIENTS, on which users log in and need ACLs."""
    made = HandMade(tmp_path_factory.mktemp("cli-users"), controllers=1, brokers=1)
    clients = f"127.0.0.1:{made.ports.broker + 4}"
    made.change(
        "broker-101",
        listeners=f"CLIENTS://{clients},PLAINTEXT://{made.bootstrap}",
        listener_security_protocol_map="CLIENTS:SASL_PLAINTEXT",
        **{
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS;User:broker-101",
        },
    )
    made.clients = clients  # type: ignore[attr-defined]
    try:
        made.start("controller-1", "broker-101")
        eventually(
            lambda: run_kvorum("topics", "list", "-b", made.bootstrap).returncode == 0,
            "the broker answers",
        )
        yield made
    finally:
        made.close()


@pytest.fixture(params=[pytest.param(way, marks=live) for way in ("broker", "controller")])
def users(request: Any, cluster: HandMade) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Runs `kvorum users` through a broker or a controller. No test leaves the user alice
    behind."""
    options = {
        "broker": ["-b", cluster.bootstrap],
        "controller": ["--bootstrap-controller", cluster.bootstrap_controller],
    }[request.param]

    def run(*arguments: str) -> tuple[int, str, str]:
        return kvorum("users", *arguments, *options)

    yield run
    run("delete", "alice", "--yes")
    assert json.loads(run("list", "-o", "json")[1]) == []


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    return str(file)


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Make standard input a pipe with this text."""
    pipe = SimpleNamespace(isatty=lambda: False, buffer=io.BytesIO(text.encode()))
    monkeypatch.setattr(sys, "stdin", pipe)


def listed(users: Any) -> list[tuple[str, str, int]]:
    code, out, _ = users("list", "-o", "json")
    assert code == 0
    return [tuple(row.values()) for row in json.loads(out)]


def test_a_user_is_created_listed_changed_and_deleted(users: Any, password_file: str) -> None:
    given = ("--password-file", password_file)
    code, out, error = users("create", "alice", *given)
    assert code == 0
    assert "sasl.mechanism=SCRAM-SHA-512" in out
    assert 'username="alice" password="...";' in out
    assert SECRET not in out + error
    # Standard output is the client's file alone, and what it says goes to the terminal.
    assert all("=" in line for line in out.splitlines())
    assert error.splitlines()[1].split() == ["alice", "SCRAM-SHA-512", "8192"]
    assert "in place of the dots" in error
    assert listed(users) == [("alice", "SCRAM-SHA-512", 8192)]
    code, _, error = users("create", "alice", *given)
    assert code == 1 and "kvorum users set-password alice changes" in error
    code, out, _ = users("set-password", "alice", *given, "--iterations", "4096", "-o", "name")
    assert (code, out) == (0, "alice\n")
    assert listed(users) == [("alice", "SCRAM-SHA-512", 4096)]
    code, out, _ = users("delete", "alice", "--yes", "-o", "json")
    assert json.loads(out) == [{"user": "alice", "mechanism": "SCRAM-SHA-512", "deleted": True}]
    assert listed(users) == []


def at_clients(cluster: Any, user: str, folder: Path) -> tuple[str, ...]:
    """The options of a command that logs in as this user, whose password is SECRET."""
    properties = client_properties(user, "SCRAM-SHA-512") | {"security.protocol": "SASL_PLAINTEXT"}
    file = folder / f"{user}.properties"
    lines = [f"{key}={value}" for key, value in properties.items()]
    file.write_text("\n".join(lines).replace("...", SECRET))
    return ("-b", cluster.clients, "--command-config", str(file))


@pytest.mark.live
@pytest.mark.timeout(120)
def test_a_user_with_the_name_of_a_super_user_is_warned_of(
    cluster: HandMade, password_file: str, tmp_path: Path
) -> None:
    given = ("--password-file", password_file)
    code, _, error = kvorum("users", "create", "broker-101", *given, "-b", cluster.bootstrap)
    assert code == 0 and "User:broker-101 is in super.users, so whoever logs in" in error, error
    # It may do everything, as the warning says.
    own = at_clients(cluster, "broker-101", tmp_path)
    assert "super" not in run_kvorum("users", "create", "bob", *given, *own).stderr
    for user in ("bob", "broker-101"):
        assert kvorum("users", "delete", user, "--yes", "-b", cluster.bootstrap)[0] == 0


@pytest.mark.live
@pytest.mark.timeout(120)
def test_a_user_who_may_not_read_super_users_is_told_so(
    cluster: HandMade, password_file: str, tmp_path: Path
) -> None:
    given = ("--password-file", password_file)
    at_broker = ("-b", cluster.bootstrap)
    assert kvorum("users", "create", "carol", *given, *at_broker)[0] == 0
    for operation in ("alter", "describe"):
        allow = ("--allow-principal", "User:carol", "--operation", operation, "--cluster")
        assert kvorum("acls", "create", *allow, *at_broker)[0] == 0
    own = at_clients(cluster, "carol", tmp_path)
    made = run_kvorum("users", "create", "bob", *given, *own)
    assert made.returncode == 0
    assert "it is not known if User:bob is in super.users" in made.stderr, made.stderr
    assert kvorum("acls", "delete", "--all", "--yes", *at_broker)[0] == 0
    for user in ("bob", "carol"):
        assert kvorum("users", "delete", user, "--yes", *at_broker)[0] == 0


def test_each_mechanism_has_a_credential(users: Any, password_file: str) -> None:
    given = ("--password-file", password_file)
    code, out, _ = users("create", "alice", *BOTH, *given, "-o", "json")
    rows = json.loads(out)
    assert [row["mechanism"] for row in rows] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert rows[1]["client_properties"]["sasl.mechanism"] == "SCRAM-SHA-512"
    assert [name for _, name, _ in listed(users)] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    code, _, error = users("set-password", "alice", *given)
    assert code == 0 and "still has the old password with SCRAM-SHA-256" in error
    code, _, _ = users("delete", "alice", "--mechanism", "SCRAM-SHA-256", "--yes")
    assert (code, [name for _, name, _ in listed(users)]) == (0, ["SCRAM-SHA-512"])
    code, _, error = users("delete", "alice", "--mechanism", "SCRAM-SHA-256", "--yes")
    assert code == 1 and "there is no user alice with SCRAM-SHA-256" in error


def test_nobody_is_changed_who_is_not_there(users: Any, password_file: str) -> None:
    code, _, error = users("set-password", "alice", "--password-file", password_file)
    assert code == 1 and "there is no user alice; kvorum users create alice makes one" in error
    code, _, error = users("delete", "alice", "--yes")
    assert code == 1 and "there is no user alice; kvorum users list shows all" in error
    assert listed(users) == []


def test_the_question_is_answered_by_no(
    users: Any, password_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    users("create", "alice", "--password-file", password_file)
    asked = []

    def confirm(text: str, **_: Any) -> None:
        asked.append(text)
        raise KeyboardInterrupt

    monkeypatch.setattr("click.confirm", confirm)
    assert users("delete", "alice")[0] == 130
    assert asked == ["Delete user alice (SCRAM-SHA-512)?"]
    assert len(listed(users)) == 1


def test_the_user_logs_in_with_what_was_printed_and_lacks_rights(
    users: Any, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 5: first for a wrong password, then for a missing ACL."""
    typed(monkeypatch, f"{SECRET}\r\nanother line\n")
    _, out, _ = users("create", "alice", "-o", "json")
    properties = json.loads(out)[0]["client_properties"] | {"security.protocol": "SASL_PLAINTEXT"}
    file = tmp_path / "client.properties"

    def as_alice(password: str, *arguments: str) -> Any:
        lines = [f"{key}={value}" for key, value in properties.items()]
        file.write_text("\n".join(lines).replace("...", password))
        return run_kvorum(*arguments, "-b", cluster.clients, "--command-config", str(file))

    wrong = as_alice("wrong", "acls", "list")
    assert (wrong.returncode, wrong.stdout) == (5, "")
    assert "SASL_AUTHENTICATION_FAILED" in wrong.stderr
    for words in (
        ("acls", "list"),
        ("acls", "create", "--allow-principal", "alice", "--operation", "all", "--topic", "*"),
        ("users", "list"),
        ("topics", "create", "t"),
    ):
        refused = as_alice(SECRET, *words)
        assert refused.returncode == 5, (words, refused.stdout, refused.stderr)
        assert "AUTHORIZATION_FAILED" in refused.stderr + refused.stdout
        assert SECRET not in refused.stderr + refused.stdout
    allow = ("--allow-principal", "alice", "--operation", "describe", "--cluster")
    assert kvorum("acls", "create", *allow, "-b", cluster.bootstrap)[0] == 0
    allowed = as_alice(SECRET, "acls", "list", "-o", "json")
    assert allowed.returncode == 0, allowed.stderr
    assert [row["operation"] for row in json.loads(allowed.stdout)] == ["DESCRIBE"]
    assert kvorum("acls", "delete", "--all", "--yes", "-b", cluster.bootstrap)[0] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the password in standard input is empty"),
        ("\n", "the password in standard input is empty"),
        ("x" * 5000, "the password has more than 4096 bytes"),
    ],
)
def test_no_password_is_no_user(text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = []
    backend = SimpleNamespace(users=lambda _: {}, super_users=tuple, set_credential=changed.append)
    monkeypatch.setattr("kvorum.cli.user_backends.open_user_backend", lambda *_: backend)
    typed(monkeypatch, text)
    code, out, error = kvorum("users", "create", "alice")
    assert (code, out, changed) == (2, "", [])
    assert message in error


def test_a_terminal_is_asked_twice_without_an_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    backend = SimpleNamespace(users=lambda _: {}, super_users=tuple, set_credential=lambda _: None)
    monkeypatch.setattr("kvorum.cli.user_backends.open_user_backend", lambda *_: backend)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))

    def prompt(_: str, **how: Any) -> str:
        asked.append(how)
        return SECRET

    monkeypatch.setattr("click.prompt", prompt)
    code, out, error = kvorum("users", "create", "alice")
    assert code == 0, error
    assert asked == [{"hide_input": True, "confirmation_prompt": True, "err": True}]
    assert SECRET not in out + error


def test_no_option_takes_a_password() -> None:
    code, _, error = kvorum("users", "create", "alice", "--password", SECRET)
    assert code == 2
    assert "No such option" in error


@pytest.mark.parametrize("name", ["alice", 'a"b', "a\\b", "CN=a, O=b"])
def test_the_printed_properties_are_those_of_the_user(name: str, tmp_path: Path) -> None:
    assert kvorum("certs", "dev", tmp_path)[0] == 0
    printed = client_properties(name, "SCRAM-SHA-512")
    assert printed["ssl.truststore.location"] == "..."
    printed["ssl.truststore.location"] = str(tmp_path / "ca.pem")
    security = security_of(written(tmp_path, printed), "a file")
    assert (security.user, security.mechanism) == (name, "SCRAM-SHA-512")
    assert security.context is not None
    # A command that logs in itself prints its own protocol, and the CA that it trusts.
    with acting_as(security):
        assert client_properties(name, "SCRAM-SHA-512") == printed
    plain = {**printed, "security.protocol": "SASL_PLAINTEXT"}
    with acting_as(security_of(written(tmp_path, plain), "a file")):
        assert list(client_properties(name, "SCRAM-SHA-512")) == list(printed)[:3]


def written(folder: Path, properties: dict[str, str]) -> dict[str, str]:
    """The properties, read back from a file."""
    file = folder / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return read_properties(str(file))


def test_a_credential_has_a_salt_of_its_own_and_shows_nothing() -> None:
    one, two = (new_credential("a", SHA_256, 4096, SECRET) for _ in range(2))
    assert one.salt != two.salt
    assert one.salted_password != two.salted_password
    assert repr(one) == "NewCredential(user='a', mechanism=1, iterations=4096)"
