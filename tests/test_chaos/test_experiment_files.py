"""The files made from the parser's tables agree with the parser: schema, reference, shipped files,
and the commands about them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from kvorum import chaos
from kvorum.chaos.experiment_file.experiment import load_experiment, parse_experiment
from kvorum.chaos.experiment_file.keys import PROMISE_KEYS
from kvorum.chaos.experiment_file.reference import TABLES, with_tables
from kvorum.chaos.experiment_file.schema import schema, schema_text
from kvorum.chaos.experiment_file.shipped import find_experiment, planned_ms, shipped
from kvorum.chaos.experiment_file.stated_promises import Promises
from kvorum.chaos.faults import LIVE_FAULTS
from kvorum.chaos.outages.promises import PROMISES
from kvorum.cli.chaos import chaos as chaos_commands
from kvorum.runtime.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(chaos.__file__).parent
EXPERIMENTS = sorted((PACKAGE / "experiments").glob("*.yaml"))
DOCUMENT = ROOT / "docs" / "experiments.md"
VALIDATOR = Draft202012Validator(schema())


def run_command(*words: str):
    return CliRunner().invoke(chaos_commands, words)


def is_accepted(text: str) -> bool:
    try:
        parse_experiment("x.yaml", text)
    except ConfigError:
        return False
    return True


def test_the_schema_is_a_schema_and_the_committed_copy_is_current():
    Draft202012Validator.check_schema(schema())
    assert (PACKAGE / "experiment_file" / "schema.json").read_text() == schema_text(), (
        "run: kvorum chaos schema > kvorum/chaos/experiment_file/schema.json"
    )
    assert run_command("schema").output == schema_text()


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_shipped_experiment_follows_the_schema_and_promises_something(path):
    VALIDATOR.validate(yaml.safe_load(path.read_text()))
    experiment = load_experiment(str(path))
    promises = experiment.configuration.promises
    assert promises.acknowledged_at_least
    assert experiment.description.endswith(".")


@pytest.mark.parametrize(
    "method",
    [
        "- heal:",
        "- kill: {target: one}",
        "- kill: {target: one, duration_ms: null}\n  name: a\n  background: true",
        "- live_brokers: [1, 3]",
        "- live_brokers:",
        "- {type: action, name: a, provider: {type: kvorum, func: heal}}",
        "- storm: {faults: [{kill: {target: one}}, {func: heal}]}",
        "- kil: {target: one}",
        "- kill: {target: two}",
        "- kill: {target: one, duration_ms: 0}",
        "- kill: {target: one}\n  pause: {target: one}",
        "- kill: {target: one}\n  pauses: {after: -1}",
        "- heal:\n  tolerance: 1",
        "- fill_disk: {target: one, duration_ms: 5}",
        "- fill_disk: {target: one}",
        "- fill_disk: {target: one, duration_ms: 5, room_bytes: -1}",
        "- slow_disk: {target: one, sync_delay_ms: 0, duration_ms: 5}",
        "- fail_disk: {target: one, operation: write, error: EROFS, duration_ms: 5}",
        "- fail_disk: {target: one, operation: read, duration_ms: 5}",
        "- fail_disk: {target: one, error: 5, duration_ms: 5}",
        "- step_clock: {target: one, step_ms: -5}",
        "- step_clock: {target: one, step_ms: 0}",
        "- step_clock: {target: one, step_ms: 86400001}",
        "- live_brokers: 3\n  tolerance: 2",
        "- kill: {target: one}\n  background: true\n  pauses: {after: 1}",
        "- kill: {target: one}\n  background: true\n  pauses: {after: 0}",
        "- storm: {faults: [heal: ]}\n  background: true",
        "- live_brokers: many",
        "- storm: {faults: []}",
        "- storm: {faults: [{kill: {}}]}",
        "- {type: action, name: a, provider: {type: http, func: heal}}",
        "- {type: action, provider: {type: python, module: kvorum.chaos.toolkit, func: heal}}",
    ],
)
def test_the_schema_and_the_parser_agree_on_a_step(method):
    text = f"title: t\nmethod:\n{method}\n"
    assert VALIDATOR.is_valid(yaml.safe_load(text)) == is_accepted(text)


@pytest.mark.parametrize(
    "configuration",
    [
        "{brokers: 99}",
        "{brokers: 100}",
        "{topic: {partitions: 1}}",
        "{topic: {partition: 1}}",
        "{workload: {linger_ms: 1.5}}",
        "{workloads: [{group: {protocol: consumer}}]}",
        "{workloads: [{group: {protocol: other}}]}",
        "{workloads: [{keyed: }]}",
        "{workloads: [{keyed: {keys: 0}}]}",
        "{settings: {a.b: 1, c: text, d: true}}",
        "{settings: {a.b: [1]}}",
        "{settings: {a.b: }}",
        "{promises: {unavailable_ms: 1}}",
        "{promises: {unavailable: 1}}",
    ],
)
def test_the_schema_and_the_parser_agree_on_a_configuration(configuration):
    text = f"title: t\nconfiguration: {configuration}\nmethod:\n- heal:\n"
    assert VALIDATOR.is_valid(yaml.safe_load(text)) == is_accepted(text)


@pytest.mark.parametrize("version", ["1.0.0", "1", "1.2", "'1'", "2.0.0", "2", "10", "new"])
def test_the_schema_and_the_parser_agree_on_a_version(version):
    text = f"title: t\nversion: {version}\nmethod:\n- heal:\n"
    assert VALIDATOR.is_valid(yaml.safe_load(text)) == is_accepted(text)
    assert is_accepted(text) == (version.strip("'").split(".")[0] == "1")


def test_the_tables_of_the_reference_are_made_from_the_code():
    text = DOCUMENT.read_text()
    assert text == with_tables(text), (
        "run: python -m kvorum.chaos.experiment_file.reference docs/experiments.md"
    )
    for name in TABLES:
        assert f"<!-- table: {name} -->" in text
    for name in LIVE_FAULTS:
        assert f"| `{name}` |" in text


def test_a_stale_table_is_made_anew_and_an_unknown_one_is_refused():
    stale = "<!-- table: probes -->\nold\n<!-- end -->\n"
    assert "`active_controllers`" in with_tables(stale)
    assert "old" not in with_tables(stale)
    with pytest.raises(ValueError, match="no table is named 'probe'"):
        with_tables("<!-- table: probe -->\n<!-- end -->")


def test_the_example_of_the_reference_is_valid():
    example = DOCUMENT.read_text().split("```yaml\n")[1].split("```")[0]
    experiment = parse_experiment("example.yaml", example)
    assert len(experiment.method) == 7
    VALIDATOR.validate(yaml.safe_load(example))


def test_every_promise_that_can_be_stated_is_judged():
    assert {key.name for key in PROMISE_KEYS} == set(PROMISES)
    assert {field.name for field in dataclasses.fields(Promises)} == set(PROMISES)


def test_at_least_fourteen_experiments_are_shipped_and_found_by_name():
    names = [one.name for one in shipped()]
    assert len(names) >= 14
    assert find_experiment("leader-kill") == str(PACKAGE / "experiments" / "leader-kill.yaml")
    with pytest.raises(ConfigError, match="did you mean 'leader-kill'"):
        find_experiment("leder-kill")


def test_the_planned_time_counts_a_fault_in_the_background_until_its_end():
    text = """\
title: t
configuration: {warm_up_ms: 100, cool_down_ms: 200}
method:
- {kill: {target: one, duration_ms: 5000}, background: true}
- {pause: {target: one, duration_ms: 1000}, pauses: {before: 1, after: 0.5}}
"""
    assert planned_ms(parse_experiment("x.yaml", text)) == 100 + 5_000 + 200
    foreground = text.replace(", background: true", "")
    assert planned_ms(parse_experiment("x.yaml", foreground)) == 100 + 7_500 + 200


def test_list_prints_every_shipped_experiment():
    rows = json.loads(run_command("list", "-o", "json").output)
    assert {row["name"] for row in rows} == {path.stem for path in EXPERIMENTS}
    assert all(row["seconds"] > 5 and row["proves"] and row["tags"] for row in rows)
    text = run_command("list").output
    assert all(f"{path.stem} " in text for path in EXPERIMENTS)


def test_validate_reports_the_problems_of_all_files_at_once(tmp_path):
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("title: t\nmethod:\n- kil: {target: one}\n")
    two.write_text("title: t\nmethod:\n- kill: {target: broker-105}\n")
    done = run_command("validate", str(one), "leader-kill", str(two), "no-such-file")
    assert done.exception.exit_code == 2
    problems = str(done.exception).splitlines()
    assert [problem.partition(": ")[0] for problem in problems] == [
        f"{one}:3",
        f"{two}:3",
        "'no-such-file' is neither a file nor a shipped experiment; see kvorum chaos list",
    ]
    assert "leader-kill.yaml: valid, 3 steps" in done.output


def test_validate_prints_the_canonical_form(tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text("title: t\nmethod:\n- kill: {target: one}\n")
    printed = run_command("validate", "--canonical", str(path)).output
    assert yaml.safe_load(printed)["method"][0]["provider"]["module"] == "kvorum.chaos.toolkit"
    assert parse_experiment("x", printed).method == load_experiment(str(path)).method
