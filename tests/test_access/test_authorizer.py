"""The authorizer's answers: Kafka's rules, and a slow model that reads these rules one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.metadata.access.authorizer import CACHED_ANSWERS_MAX, Authorizer
from kvorum.metadata.access.hosts import (
    host_matches,
    is_matching_host,
    is_valid_host,
    plain_address,
)
from kvorum.metadata.image.acl import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
HERE = "10.0.0.7"


def acl(name="orders", *, operation=READ, deny=False, prefixed=False, user="alice", host="*"):
    return Acl(
        resource_type=TOPIC,
        resource_name=name,
        pattern_type=PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        principal=f"User:{user}",
        host=host,
        operation=operation,
        permission=Permission.DENY if deny else Permission.ALLOW,
    )


def allows(*acls, operation=READ, name="orders", user="alice", host=HERE, **settings):
    authorizer = Authorizer(**settings)
    authorizer.replace(acls)
    return authorizer.is_allowed(user, host, operation, TOPIC, name)


def test_without_an_acl_nobody_may_do_anything():
    assert not allows()
    assert not allows(acl("other"))


def test_super_users_may_do_everything_even_what_is_denied():
    assert allows(acl(deny=True), super_users=["User:alice"])
    assert not allows(acl(deny=True), super_users=["User:bob"])


def test_a_resource_without_acls_is_open_if_the_broker_says_so():
    assert allows(allow_if_no_acl=True)
    assert not allows(acl(user="bob"), allow_if_no_acl=True)
    assert not allows(acl("ord", prefixed=True, user="bob"), allow_if_no_acl=True)
    assert not allows(acl("*", user="bob"), allow_if_no_acl=True)


@pytest.mark.parametrize(
    "given_acl",
    [acl(), acl("*"), acl("ord", prefixed=True), acl(user="*"), acl(operation=AclOperation.ALL)],
)
def test_patterns_users_and_operations_that_match(given_acl):
    assert allows(given_acl)


@pytest.mark.parametrize(
    "given_acl",
    [acl("Orders"), acl("orders2", prefixed=True), acl(user="bob"), acl(operation=WRITE),
     acl("ord"), acl("or*", prefixed=True)],
)  # fmt: skip
def test_patterns_users_and_operations_that_do_not_match(given_acl):
    assert not allows(given_acl)


@pytest.mark.parametrize(
    "deny",
    [
        acl(deny=True),
        acl("*", deny=True),
        acl("o", prefixed=True, deny=True),
        acl(user="*", deny=True),
    ],
)
def test_a_deny_of_any_pattern_beats_every_allow(deny):
    assert not allows(acl(), acl("*"), deny)
    assert not allows(deny, acl(), acl("*"))


@pytest.mark.parametrize("operation", ["READ", "WRITE", "DELETE", "ALTER"])
def test_an_allow_of_use_implies_describe_and_a_deny_of_it_does_not(operation):
    use = AclOperation[operation]
    assert allows(acl(operation=use), operation=DESCRIBE)
    assert allows(acl(operation=use, deny=True), acl(operation=DESCRIBE), operation=DESCRIBE)
    assert not allows(acl(operation=use), operation=AclOperation.CREATE)


def test_alter_configs_implies_describe_configs():
    assert allows(
        acl(operation=AclOperation.ALTER_CONFIGS), operation=AclOperation.DESCRIBE_CONFIGS
    )


def test_answers_follow_changes_of_acls():
    authorizer = Authorizer()
    assert not authorizer.is_allowed("alice", HERE, READ, TOPIC, "orders")
    assert not authorizer.is_allowed_on_any("alice", HERE, READ, TOPIC)
    authorizer.change(added=[acl()])
    assert authorizer.is_allowed("alice", HERE, READ, TOPIC, "orders")
    assert authorizer.is_allowed_on_any("alice", HERE, READ, TOPIC)
    authorizer.change(removed=[acl()])
    assert not authorizer.is_allowed("alice", HERE, READ, TOPIC, "orders")
    assert not authorizer.is_allowed_on_any("alice", HERE, READ, TOPIC)


def test_ever_new_names_cost_no_more_than_a_bounded_memory(monkeypatch):
    monkeypatch.setattr("kvorum.metadata.access.authorizer.CACHED_ANSWERS_MAX", 10)
    assert CACHED_ANSWERS_MAX > 10
    authorizer = Authorizer()
    for number in range(100):
        authorizer.is_allowed("alice", HERE, READ, TOPIC, f"name-{number}")
        assert len(authorizer._answers) <= 10


def test_hosts_are_addresses_ranges_or_all():
    assert allows(acl(host=HERE)) and allows(acl(host="10.0.0.0/24")) and allows(acl(host="*"))
    assert not allows(acl(host="10.0.1.0/24")) and not allows(acl(host="10.0.0.8"))
    assert not allows(acl(host="2001:db8::/32"))
    assert allows(acl(host="2001:db8::/32"), host="2001:db8::7")
    assert allows(acl(host="2001:0db8::7"), host="2001:db8::7")
    assert allows(acl(host=HERE), host=f"::ffff:{HERE}")


def test_an_ipv4_address_in_ipv6_form_matches_no_client():
    for host in (HERE, f"::ffff:{HERE}"):
        assert not allows(acl(host=f"::ffff:{HERE}"), host=host)
    assert is_valid_host(f"::ffff:{HERE}") and not is_matching_host(f"::ffff:{HERE}")


def test_a_host_with_a_slash_must_be_a_range():
    assert is_valid_host("10.0.0.0/8") and is_valid_host("*") and is_valid_host("anything")
    assert not is_valid_host("10.0.0.0/33") and not is_valid_host("10.0.0/x")
    assert not is_valid_host("10.0.0.0/255.0.0.0")
    assert plain_address("fe80::1%eth0") == "fe80::1"
    assert not host_matches("10.0.0.0/8", "no address")


names = st.sampled_from(["a", "ab", "abc", "b", "*"])
acls = st.builds(
    acl,
    names,
    operation=st.sampled_from([READ, WRITE, DESCRIBE, AclOperation.ALL]),
    deny=st.booleans(),
    prefixed=st.booleans(),
    user=st.sampled_from(["alice", "bob", "*"]),
    host=st.sampled_from(["*", HERE, "10.0.0.0/8", "10.9.9.9"]),
).filter(lambda rule: not (rule.resource_name == "*" and rule.pattern_type == PatternType.PREFIXED))


def model(rules, user, operation, name):
    """All rules read one by one."""
    implied = {DESCRIBE: {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER}}

    def covers(rule):
        is_pattern = (
            name.startswith(rule.resource_name)
            if rule.pattern_type == PatternType.PREFIXED
            else rule.resource_name in (name, "*")
        )
        operations = {AclOperation.ALL, operation}
        if rule.permission == Permission.ALLOW:
            operations |= implied.get(operation, set())
        return (
            is_pattern
            and rule.operation in operations
            and rule.principal in (f"User:{user}", "User:*")
            and rule.host in ("*", HERE, "10.0.0.0/8")
        )

    found = {rule.permission for rule in rules if covers(rule)}
    return Permission.DENY not in found and Permission.ALLOW in found


@given(
    st.lists(acls, unique=True),
    st.lists(acls, unique=True),
    st.sampled_from(["alice", "bob"]),
    st.sampled_from([READ, WRITE, DESCRIBE]),
)
def test_answers_are_those_of_the_rules_read_one_by_one(first, then, user, operation):
    authorizer = Authorizer()
    authorizer.replace(first)
    authorizer.change(
        added=[rule for rule in then if rule not in first],
        removed=[rule for rule in first if rule not in then],
    )
    answers = {}
    for name in ("a", "ab", "abc", "abcd", "b", "c"):
        answers[name] = model(then, user, operation, name)
        assert authorizer.is_allowed(user, HERE, operation, TOPIC, name) == answers[name]
        assert not authorizer.is_allowed(user, HERE, operation, GROUP, name)
    if any(answers.values()):
        assert authorizer.is_allowed_on_any(user, HERE, operation, TOPIC)
    assert not authorizer.is_allowed_on_any(user, HERE, operation, GROUP)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([acl()], True),
        ([acl(), acl(deny=True)], False),
        ([acl(), acl("o", prefixed=True, deny=True)], False),
        ([acl("*"), acl("o", prefixed=True, deny=True)], True),
        ([acl("o", prefixed=True), acl("o", deny=True)], True),
        ([acl("o", prefixed=True), acl("*", deny=True)], False),
        ([acl("orders", prefixed=True), acl("o", prefixed=True, deny=True, user="*")], False),
        ([acl(user="bob")], False),
    ],
)
def test_some_resource_of_a_type(rules, expected):
    authorizer = Authorizer()
    authorizer.replace(rules)
    assert authorizer.is_allowed_on_any("alice", HERE, READ, TOPIC) is expected


def test_filters_select_by_pattern():
    rules = [acl(), acl("*"), acl("ord", prefixed=True), acl("other")]

    def found(**fields):
        return [rule for rule in rules if AclFilter(**fields).matches(rule)]

    assert found() == rules
    assert found(resource_name="orders") == [acl()]
    assert found(resource_name="orders", pattern_type=PatternType.MATCH) == rules[:3]
    assert found(resource_name="ord", pattern_type=PatternType.PREFIXED) == [rules[2]]
    assert found(principal="User:bob") == [] and found(host="*") == rules
    assert found(operation=WRITE) == [] and found(permission=Permission.DENY) == []
