"""From a certificate's subject to a user (KIP-371), compared with Java's classes.

The golden files hold what `javax.security.auth.x500.X500Principal` (OpenJDK 17) and Kafka's
`SslPrincipalMapper` answered.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvorum.runtime.certificate_names import name_text
from kvorum.runtime.errors import ConfigError, WireError
from kvorum.runtime.principals import PrincipalRules

GOLDEN = Path(__file__).parent.parent / "golden" / "principals"
NAMES = json.loads((GOLDEN / "names.json").read_text())
RULES = json.loads((GOLDEN / "rules.json").read_text())
NAME = "CN=Orders,OU=ServiceUsers,O=Example\\, Inc.,C=DE"


@pytest.mark.parametrize(("name", "text"), NAMES)
def test_a_name_is_written_as_java_writes_it(name: str, text: str):
    data = bytes.fromhex(name)
    parts = data[2 if data[1] < 0x80 else 2 + (data[1] & 0x7F) :]
    assert name_text(parts) == text


@pytest.mark.parametrize(("rules", "name", "user"), RULES["same"])
def test_a_rule_gives_the_user_that_kafka_gives(rules: str, name: str, user: str | None):
    made = PrincipalRules(rules)
    if user is None:
        with pytest.raises(WireError, match="add a rule for it, or DEFAULT"):
            made.user_of_name(name)
    else:
        assert made.user_of_name(name) == user


@pytest.mark.parametrize("rules", RULES["refused"])
def test_a_rule_that_cannot_work_as_in_kafka_stops_the_start(rules: str):
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalRules(rules)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("CN=(.*)", "neither DEFAULT nor RULE"),
        ("RULE:^CN=(.*$/$1/", "missing )"),
        ("RULE:^CN=sr,.*$/$1/", "the pattern has no group 1"),
        ("RULE:^CN=(.*)$/${n}/", "no group with the name n"),
        ("RULE:^CN=(.*)$/$/", "no reference to a group"),
        ("RULE:^CN=(.*)$/a\\/", "neither DEFAULT nor RULE"),
        ("RULE:[a-z&&[^b]]/x/", "intersections of classes are not supported"),
        ("DEFAULT DEFAULT", "no comma before"),
        ("RULE:a/b/X", "no comma before"),
    ],
)
def test_a_bad_rule_is_refused_with_its_fault(rules: str, said: str):
    with pytest.raises(ConfigError) as refused:
        PrincipalRules(rules)
    assert said in str(refused.value)


@pytest.mark.parametrize("rules", ["RULE:^CN=x$/x/", "", " ,"])
def test_a_name_that_no_rule_matches_gives_no_user(rules: str):
    with pytest.raises(WireError) as refused:
        PrincipalRules(rules).user_of_name(NAME)
    assert repr(NAME) in str(refused.value)


def test_a_client_that_chooses_its_name_cannot_block_a_node():
    rules = PrincipalRules("RULE:^(CN=(a+)+)+$/$1/,DEFAULT")
    assert rules.user_of_name("CN=" + "a" * 50_000 + "!").endswith("!")
