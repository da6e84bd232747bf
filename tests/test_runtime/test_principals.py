"""From a certificate's subject to a user (KIP-371)."""

from __future__ import annotations

import pytest

from kvorum.runtime.errors import ConfigError
from kvorum.runtime.principals import PrincipalRules, distinguished_name

SUBJECT = {
    "subject": (
        (("countryName", "DE"),),
        (("organizationName", "Example, Inc."),),
        (("organizationalUnitName", "ServiceUsers"),),
        (("commonName", "Orders"),),
    )
}
NAME = "CN=Orders,OU=ServiceUsers,O=Example\\, Inc.,C=DE"


def test_a_name_has_its_last_part_first_and_special_characters_escaped():
    assert distinguished_name(SUBJECT) == NAME
    assert PrincipalRules().user_of(SUBJECT) == NAME
    assert distinguished_name({}) == ""


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Orders"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1@svc/L", "orders@svc"),
        ("RULE:^CN=(.*?),.*$/$1/U", "ORDERS"),
        ("RULE:^CN=(.*?),OU=Admins.*$/$1/, DEFAULT", NAME),
        ("RULE:^CN=x$/x/,RULE:^CN=(\\w+),OU=(\\w+),.*$/$2.$1/,DEFAULT", "ServiceUsers.Orders"),
        ("RULE:^CN=x$/x/", NAME),
        ("RULE:CN=Orders/x/", NAME),
        ("", NAME),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_decides(rules, user):
    assert PrincipalRules(rules).user_of(SUBJECT) == user


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("CN=(.*)", "neither DEFAULT nor RULE"),
        ("RULE:^CN=(.*$/$1/", "unterminated subpattern"),
        ("RULE:^CN=(.*)$/$2/", "invalid group reference"),
        ("DEFAULT DEFAULT", "no comma before"),
        ("RULE:a/b/X", "no comma before"),
    ],
)
def test_a_bad_rule_is_refused(rules, said):
    with pytest.raises(ConfigError) as refused:
        PrincipalRules(rules)
    assert said in str(refused.value)
