"""Properties bound to dataclasses: names, types, defaults, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kvorum.runtime.config import (
    bind,
    check_types,
    dump_properties,
    load_properties,
    parse_assignment,
    property_names,
)
from kvorum.runtime.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    node_id: int
    session_timeout_ms: int = 5
    rate: float = 0.5
    is_enabled: bool = False
    log_dirs: str = "here"


def test_names_are_fields_with_dots():
    assert property_names(Example) == [
        "node.id", "session.timeout.ms", "rate", "is.enabled", "log.dirs",
    ]  # fmt: skip


def test_values_are_bound_and_defaults_fill_the_rest():
    assert bind(Example, {"node.id": 7, "not.ours": 1}) == Example(node_id=7)
    bound = bind(Example, {"node.id": "7", "rate": "2", "is.enabled": "TRUE", "log.dirs": "3"})
    assert bound == Example(node_id=7, rate=2.0, is_enabled=True, log_dirs="3")


def test_missing_required_property_is_named():
    with pytest.raises(ConfigError, match=r"property 'node\.id' is required"):
        bind(Example, {})


def test_all_problems_are_told_at_once():
    properties = {"rate": "fast", "is.enabled": 1}
    problems = (
        "property 'node.id' is required; property 'rate' must be a number, not 'fast'; "
        "property 'is.enabled' must be a boolean (true or false), not 1"
    )
    with pytest.raises(ConfigError) as error:
        bind(Example, properties)
    assert str(error.value) == problems
    with pytest.raises(ConfigError) as error:
        check_types([Example, Example], properties)
    assert str(error.value) == problems


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("node.id", "x", "whole number"),
        ("node.id", 1.5, "whole number"),
        ("node.id", True, "whole number"),
        ("rate", "fast", "number"),
        ("rate", True, "number"),
        ("is.enabled", "yes", "boolean (true or false)"),
        ("is.enabled", 1, "boolean (true or false)"),
    ],
)
def test_wrong_type_names_property_value_and_kind(name, value, kind):
    with pytest.raises(ConfigError) as error:
        bind(Example, {"node.id": 1, name: value})
    assert str(error.value) == f"property {name!r} must be a {kind}, not {value!r}"


@pytest.mark.parametrize("value", [7_423, True, 74.23])
def test_what_may_be_a_password_without_quotes_is_not_shown(value):
    with pytest.raises(ConfigError) as error:
        bind(Example, {"node.id": 1, "log.dirs": value})
    assert str(error.value) == "property 'log.dirs' must be a string (in quotes)"


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "a.toml"
    path.write_bytes(b"a = 1\n\xff\xfe")
    with pytest.raises(ConfigError, match=r"a\.toml is not TOML: it is not UTF-8, see byte 6"):
        load_properties(str(path))


def test_toml_tables_are_joined_and_dumped_text_loads_again(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text('top = 1\n[log]\ndirs = "d"\n[log.segment]\nbytes = 2\n')
    assert load_properties(str(path)) == {"top": 1, "log.dirs": "d", "log.segment.bytes": 2}
    values = {"a.b": True, "c": 1.5, "d": 'quote " and \\ slash', "e": 3}
    path.write_text(dump_properties(values))
    assert load_properties(str(path)) == values


@pytest.mark.parametrize("text", ["a = [1]", "a = 2020-01-01"])
def test_values_that_are_no_property_are_refused(tmp_path, text):
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="'a' must be a string, a number or a boolean"):
        load_properties(str(path))


def test_assignment_is_split_at_its_first_equals_sign():
    assert parse_assignment(" a.b = c=d ") == ("a.b", "c=d")
    for text in ("novalue", "=value", " =x"):
        with pytest.raises(ConfigError, match="is not of the form key=value"):
            parse_assignment(text)
