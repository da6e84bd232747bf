"""`kvorum acls` through a broker and through a controller, and the rules of its options."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvorum.cli import acl_rules as rules
from kvorum.cli.common import confirm
from kvorum.client.failures import CommandFailed
from kvorum.metadata.image.acl import AclOperation, PatternType, Permission, ResourceType
from kvorum.runtime.errors import ConfigError
from tests.command import kvorum
from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.polling import eventually

live = [pytest.mark.live, pytest.mark.timeout(120)]
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
KEYS = [
    "principal", "host", "resource_type", "resource_name", "pattern_type", "operation",
    "permission",
]  # fmt: skip
ALICE = ("--allow-principal", "User:alice")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandMade]:
    settings = [f"authorizer.class.name={AUTHORIZER}", "super.users=User:ANONYMOUS"]
    made = HandMade(
        tmp_path_factory.mktemp("cli-acls"), controllers=1, brokers=1, settings=settings
    )
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
def acls(request: Any, cluster: HandMade) -> Iterator[Run]:
    """Runs `kvorum acls` through a broker or a controller. No test leaves an ACL behind."""
    options = {
        "broker": ["-b", cluster.bootstrap],
        "controller": ["--bootstrap-controller", cluster.bootstrap_controller],
    }[request.param]

    def run(*arguments: str) -> tuple[int, str, str]:
        return kvorum("acls", *arguments, *options)

    yield run
    assert run("delete", "--all", "--yes")[0] == 0


def rows_of(acls: Run, *arguments: str) -> list[dict[str, Any]]:
    code, out, error = acls(*arguments, "-o", "json")
    assert (code, error) == (0, ""), out + error
    found: list[dict[str, Any]] = json.loads(out)
    return found


def brief(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [(row["resource_name"], row["principal"], row["operation"]) for row in rows]


def test_acls_are_created_listed_and_deleted(acls: Run) -> None:
    create = ("create", *ALICE, "--operation", "read,Describe", "--topic", "orders")
    made = rows_of(acls, *create)
    assert [list(row) for row in made] == [[*KEYS, "error", "message"]] * 2
    assert [row["error"] for row in made] == ["NONE"] * 2
    both = [("orders", "User:alice", "READ"), ("orders", "User:alice", "DESCRIBE")]
    assert brief(made) == both
    rows = rows_of(acls, "list")
    assert [list(row) for row in rows] == [KEYS] * 2
    assert brief(rows) == both
    assert rows[0] == {
        "principal": "User:alice", "host": "*", "resource_type": "TOPIC",
        "resource_name": "orders", "pattern_type": "LITERAL", "operation": "READ",
        "permission": "ALLOW",
    }  # fmt: skip
    # Creating the same ACLs again succeeds and changes nothing.
    assert brief(rows_of(acls, *create)) == both
    assert len(rows_of(acls, "list")) == 2
    gone = rows_of(acls, "delete", "--operation", "read", "--yes")
    assert brief(gone) == both[:1]
    assert brief(rows_of(acls, "list")) == both[1:]


def test_a_table_says_what_was_done(acls: Run) -> None:
    create = ("create", *ALICE, "--operation", "all", "--group", "g")
    dry = acls(*create, "--dry-run")
    assert dry[0] == 0 and "would be created" in dry[1]
    assert rows_of(acls, "list") == []
    code, out, _ = acls(*create)
    assert code == 0
    assert out.splitlines()[0].split() == [*(key.upper() for key in KEYS), "RESULT", "MESSAGE"]
    assert out.splitlines()[1].split()[-1] == "created"
    dry = acls("delete", "--group", "g", "--dry-run")
    assert dry[0] == 0 and "would be deleted" in dry[1]
    assert len(rows_of(acls, "list")) == 1
    assert acls("delete", "--group", "g", "--yes")[1].splitlines()[1].split()[-1] == "deleted"


def test_a_prefixed_asterisk_is_stored_as_such_and_warned_of(acls: Run) -> None:
    code, out, error = acls(
        "create", *ALICE, "--operation", "read", "--topic", "*", "--prefixed", "-o", "json"
    )
    assert code == 0
    assert [(row["resource_name"], row["pattern_type"]) for row in json.loads(out)] == [
        ("*", "PREFIXED")
    ]
    assert "--topic '*' with --prefixed matches only names that begin with an asterisk" in error
    assert [row["pattern_type"] for row in rows_of(acls, "list")] == ["PREFIXED"]


def test_a_filter_selects(acls: Run) -> None:
    rows_of(acls, "create", *ALICE, "--operation", "read", "--topic", "ord", "--prefixed")
    rows_of(acls, "create", *ALICE, "--operation", "read", "--topic", "*", "--topic", "orders")
    rows_of(
        acls, "create", "--deny-principal", "bob", "--deny-host", "10.0.0.0/8", "--cluster",
        "--operation", "alter",
    )  # fmt: skip
    names = {
        (): ["*", "ord", "orders", "kafka-cluster"],
        ("--topic", "orders"): ["orders"],
        ("--topic", "orders", "--pattern", "match"): ["*", "ord", "orders"],
        ("--pattern", "prefixed"): ["ord"],
        ("--principal", "bob"): ["kafka-cluster"],
        ("--host", "10.0.0.0/8"): ["kafka-cluster"],
        ("--permission", "allow"): ["*", "ord", "orders"],
        ("--cluster", "--topic", "ord"): ["ord", "kafka-cluster"],
    }
    for options, expected in names.items():
        assert [row["resource_name"] for row in rows_of(acls, "list", *options)] == expected


def test_the_question_is_answered_by_no_or_yes(acls: Run, monkeypatch: Any) -> None:
    rows_of(acls, "create", *ALICE, "--operation", "read", "--topic", "orders")
    asked = []

    def confirm(text: str, **_: Any) -> None:
        asked.append(text)
        raise KeyboardInterrupt

    monkeypatch.setattr("click.confirm", confirm)
    assert acls("delete", "--topic", "orders")[0] == 130
    assert asked == ["Delete 1 ACL?"]
    assert len(rows_of(acls, "list")) == 1
    monkeypatch.setattr("click.confirm", lambda *_, **__: True)
    assert acls("delete", "--topic", "orders")[0] == 0
    assert rows_of(acls, "list") == []


USAGE = [
    (("create", "--operation", "read", "--topic", "t"), "give --allow-principal or"),
    (("create", *ALICE, "--operation", "read"), "give --topic, --group"),
    (("create", *ALICE, "--topic", "t"), "give --operation, --producer or --consumer"),
    (("create", *ALICE, "--topic", "t", "--operation", "fly"), "'fly' is no operation; there are"),
    (("create", *ALICE, "--group", "g", "--operation", "write"), "a group has no operation write"),
    (
        ("create", *ALICE, "--topic", "t", "--operation", "read", "--deny-host", "::1"),
        "--deny-host needs --deny-principal",
    ),
    (
        ("create", *ALICE, "--topic", "t", "--operation", "read", "--allow-host", "1.2.3.4/99"),
        "--allow-host='1.2.3.4/99' would never match: it is neither an address",
    ),
    (
        ("create", *ALICE, "--topic", "t", "--operation", "read", "--allow-host", "h.example.org"),
        "--allow-host='h.example.org' would never match: it is neither an address nor a range",
    ),
    (
        ("create", "--allow-principal", "User:", "--topic", "t", "--operation", "read"),
        "'User:' is no principal",
    ),
    (("create", *ALICE, "--producer", "--group", "g"), "--producer and --consumer need --topic"),
    (("create", *ALICE, "--consumer", "--topic", "t"), "--consumer needs --group"),
    (("create", *ALICE, "--producer", "--topic", "t", "--group", "g"), "no use for a group"),
    (
        ("create", *ALICE, "--producer", "--topic", "t", "--operation", "read"),
        "leave --operation out",
    ),
    (("create", *ALICE, "--idempotent", "--topic", "t"), "--idempotent is for --producer"),
    (("list", "--pattern", "match"), "--pattern match needs the name of a resource"),
    (("delete",), "say which ACLs to delete, or give --all"),
    (("delete", "--all", "--topic", "t"), "say which ACLs to delete, or give --all"),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE, ids=lambda value: str(value)[:50])
def test_wrong_options_are_refused_before_anything_is_asked(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a cluster was asked")

    monkeypatch.setattr("kvorum.cli.acl_backends.open_acl_backend", never)
    code, out, error = kvorum("acls", *arguments)
    assert (code, out) == (2, "")
    assert message in error


def test_a_principal_that_no_client_can_be_is_told_and_taken() -> None:
    create = ("acls", "create", "--topic", "t", "--operation", "read", "--dry-run")
    code, out, error = kvorum(*create, "--allow-principal", "Grop:alice")
    assert code == 0 and "Grop:alice" in out
    assert "--allow-principal=Grop:alice matches nobody here" in error
    places = ("--allow-host", "10.0.0.0/8", "--allow-host", "::1", "--allow-host", "*")
    code, _, error = kvorum(*create, "--allow-principal", "alice", *places)
    assert (code, error) == (0, "")


def test_a_no_changes_nothing_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for typed, words in (("n\n", "nothing was changed"), ("", "--yes asks no question")):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        with pytest.raises(CommandFailed, match=words) as failed:
            confirm("Delete 1 ACL?")
        assert failed.value.exit_code == 1
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    confirm("Delete 1 ACL?")


def whom(*principals: str) -> rules.Whom:
    return rules.Whom(permission=Permission.ALLOW, principals=principals, hosts=["*"])


def convenient(*resources: Any, **flags: bool) -> set[tuple[Any, ...]]:
    names = ("is_producer", "is_consumer", "is_idempotent", "is_prefixed")
    found = rules.convenient_acls(
        resources, [whom("User:a")], **{name: flags.get(name, False) for name in names}
    )
    return {
        (acl.resource_type, acl.resource_name, acl.pattern_type, acl.operation) for acl in found
    }


def test_conveniences_are_those_of_kafka_acls() -> None:
    topic, group = (ResourceType.TOPIC, "t"), (ResourceType.GROUP, "g")
    ids = (ResourceType.TRANSACTIONAL_ID, "x")
    literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
    of_topic = {AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE}
    assert convenient(topic, is_producer=True) == {(*topic, literal, op) for op in of_topic}
    assert convenient(topic, ids, is_producer=True, is_idempotent=True, is_prefixed=True) == {
        *((*topic, prefixed, op) for op in of_topic),
        (*ids, prefixed, AclOperation.WRITE),
        (*ids, prefixed, AclOperation.DESCRIBE),
        (ResourceType.CLUSTER, "kafka-cluster", literal, AclOperation.IDEMPOTENT_WRITE),
    }
    assert convenient(topic, group, is_consumer=True) == {
        (*topic, literal, AclOperation.READ),
        (*topic, literal, AclOperation.DESCRIBE),
        (*group, literal, AclOperation.READ),
    }
    assert len(convenient(topic, group, is_consumer=True, is_producer=True)) == 5


def test_names_of_operations_and_principals() -> None:
    spellings = ["describe-configs", "DESCRIBE_CONFIGS", "DescribeConfigs, all"]
    configs = AclOperation.DESCRIBE_CONFIGS
    assert rules.operations_of(spellings) == [configs, configs, configs, AclOperation.ALL]
    assert rules.principal_of("alice") == "User:alice"
    assert rules.principal_of("User:CN=a:b") == "User:CN=a:b"
    with pytest.raises(ConfigError):
        rules.operations_of(["any"])


def test_each_acl_comes_once_with_the_pattern_that_was_said() -> None:
    topics = [(ResourceType.TOPIC, "t"), (ResourceType.TOPIC, "*"), (ResourceType.TOPIC, "t")]
    for is_prefixed, pattern in ((True, PatternType.PREFIXED), (False, PatternType.LITERAL)):
        found = rules.new_acls(
            topics, [AclOperation.READ], [whom("User:a", "User:a")], is_prefixed=is_prefixed
        )
        assert [(acl.resource_name, acl.pattern_type) for acl in found] == [
            ("t", pattern), ("*", pattern),
        ]  # fmt: skip
