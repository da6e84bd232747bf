"""run.json and report.json are read as they were written, and refused where they are not theirs."""

from __future__ import annotations

import json

import pytest
from msgspec import convert

from kvorum.chaos.report.document import read_json
from kvorum.chaos.report.report import write_report
from kvorum.chaos.run_record import RunRecord, parse_record, write_record
from kvorum.runtime.errors import CorruptData

from .histories import good_history
from .runs import record, write_run


def test_a_record_is_read_as_it_was_written(tmp_path):
    system = {"name": "kafka", "version": "4.3"}
    one = convert(record(system=system, compacted_topics=["t"], history_bytes=7), RunRecord)
    write_record(one, tmp_path)
    assert parse_record(tmp_path / "run.json") == one
    assert json.loads((tmp_path / "run.json").read_text())["system"] == system


def test_a_run_in_progress_says_nothing_of_the_length_of_its_history(tmp_path):
    write_record(convert(record(), RunRecord), tmp_path)
    assert "history_bytes" not in json.loads((tmp_path / "run.json").read_text())


def test_a_record_of_wrong_type_names_the_key(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(record(seed="four")))
    with pytest.raises(CorruptData, match=r"not the record of a run: .*`\$\.seed`"):
        parse_record(tmp_path / "run.json")


def test_a_report_is_read_as_it_was_written(tmp_path):
    history = good_history()
    history.fault(0, 30, 35, led=[0], held=[0, 1])
    promises = {"acknowledged_at_least": 1}
    write_run(tmp_path, history, configuration={"promises": promises})
    write_report(str(tmp_path))
    content = json.loads((tmp_path / "report.json").read_text())
    report = read_json(tmp_path)
    assert report.load.acknowledged == content["load"]["acknowledged"] == 20
    assert report.promises[0].bound() == content["promises"][0]["bound"] == "at least 1"
    assert [one.is_unowned for one in report.outages.rows] == [
        row["is_unowned"] for row in content["outages"]["rows"]
    ]
    assert all(check.is_decided for check in report.checks)


def test_a_report_without_its_fields_names_the_way_out(tmp_path):
    (tmp_path / "report.json").write_text('{"version": 3}')
    with pytest.raises(CorruptData, match=r"not a report: .*`title`; `kvorum report .* again"):
        read_json(tmp_path)
