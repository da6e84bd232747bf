from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvorum.chaos.report.diff import RunDifference, diff_runs
from kvorum.chaos.report.report import write_report
from kvorum.runtime.errors import ConfigError, CorruptData

from .histories import HistoryBuilder, pipelined
from .runs import References, write_run


def a_run(
    folder: Path,
    silent_ms: int,
    *,
    faults: tuple[str, ...] = ("hang",),
    load_ms: int = 8_000,
    **changes,
) -> str:
    """Partition 0 is silent from 2 s on; each fault lasts a second."""
    folder.mkdir()
    history = HistoryBuilder()
    pipelined(history, 0, load_ms, silent={0: (2_000, 2_000 + silent_ms)})
    for number, name in enumerate(faults):
        begin_ms = 1_950 + 2_000 * number
        history.fault(
            number, begin_ms, begin_ms + 1_000, name=name, held=[0, 1], description=f"<{name}>"
        )
    history.events.sort(key=lambda event: event.time_ms)
    for partition in (0, 1):
        values = [(value, value) for value in range(load_ms // 10)]
        history.consumed(partition, values)
        history.final(partition, values)
    write_run(folder, history, **changes)
    write_report(str(folder))
    return str(folder)


def figure(difference: RunDifference, words: str):
    (found,) = (item for item in difference.figures if item.words == words)
    return found


def test_two_runs_stand_side_by_side_with_their_ratios(tmp_path):
    first, second = a_run(tmp_path / "a", 500), a_run(tmp_path / "b", 1_500)
    page = tmp_path / "diff.html"
    difference = diff_runs(first, second, str(page))
    assert difference.names == ("a", "b")
    silence = figure(difference, "longest silence of a partition")
    assert silence.values == (500, 1_500)
    assert (silence.ratio, silence.is_worse) == (pytest.approx(3.0), True)
    same = figure(difference, "records acknowledged")
    assert (same.ratio, same.is_worse) == (1.0, None)
    ((name, figures),) = difference.faults
    assert name == "<hang>"
    assert [item.ratio for item in figures if item.words.startswith("unavailable")] == [
        pytest.approx(3.0, rel=0.05)
    ]
    text = page.read_text()
    references = References()
    references.feed(text)
    assert references.found == [] and "script" not in references.tags
    assert references.tags.count("svg") == 2
    assert "&lt;hang&gt;" in text and "× 3.00" in text


def test_a_longer_run_acknowledges_more_and_is_none_the_better(tmp_path):
    first = a_run(tmp_path / "a", 500)
    second = a_run(tmp_path / "b", 500, load_ms=16_000)
    difference = diff_runs(first, second, str(tmp_path / "diff.html"))
    count = figure(difference, "records acknowledged")
    assert (count.values, count.is_worse) == ((1_600, 3_200), None)
    rate = figure(difference, "records acknowledged per second")
    assert rate.values == (pytest.approx(200, abs=1), pytest.approx(200, abs=1))
    assert rate.is_worse is None


def test_a_figure_that_was_nothing_before_is_marked(tmp_path):
    first, second = a_run(tmp_path / "a", 0), a_run(tmp_path / "b", 1_500)
    page = tmp_path / "diff.html"
    outages = figure(diff_runs(first, second, str(page)), "outages")
    assert (outages.values[0], outages.is_worse, outages.ratio_text()) == (0, True, "from 0")
    assert 'class="n bad">from 0</td>' in page.read_text()
    lost = figure(diff_runs(first, second, str(page)), "records lost")
    assert (lost.is_worse, lost.ratio_text()) == (None, "–")


def test_the_other_way_round_the_second_run_is_better(tmp_path):
    first, second = a_run(tmp_path / "a", 1_500), a_run(tmp_path / "b", 500)
    difference = diff_runs(first, second, str(tmp_path / "diff.html"))
    assert figure(difference, "longest silence of a partition").is_worse is False


def test_columns_are_named_after_the_systems_if_these_differ(tmp_path):
    kvorum, kafka = {"name": "kvorum", "version": "1"}, {"name": "kafka", "version": "4.3"}
    first = a_run(tmp_path / "a", 500, system=kvorum)
    second = a_run(tmp_path / "b", 500, system=kafka)
    difference = diff_runs(first, second, str(tmp_path / "diff.html"))
    assert difference.names == ("kvorum 1", "kafka 4.3")
    (tmp_path / "c").mkdir()
    third = a_run(tmp_path / "c" / "a", 500, system=kvorum)
    assert diff_runs(first, third, str(tmp_path / "d.html")).names == ("a (1)", "a (2)")


def test_faults_match_by_name_and_order_and_the_rest_is_named(tmp_path):
    first = a_run(tmp_path / "a", 500, faults=("hang", "hang", "cut"))
    second = a_run(tmp_path / "b", 500, faults=("hang", "kill"))
    difference = diff_runs(first, second, str(tmp_path / "diff.html"))
    assert [name for name, _ in difference.faults] == ["<hang>"]
    assert difference.unmatched == (("hang", "a"), ("cut", "a"), ("kill", "b"))
    assert "kill: only in b" in (tmp_path / "diff.html").read_text()


def test_promises_of_both_runs_stand_beside_each_other(tmp_path):
    configuration = {"controllers": 3, "brokers": 3, "promises": {"unavailable_ms": 1_000}}
    first = a_run(tmp_path / "a", 500, configuration=configuration)
    second = a_run(tmp_path / "b", 1_500, configuration=configuration)
    difference = diff_runs(first, second, str(tmp_path / "diff.html"))
    ((kept, promised),) = difference.promises
    assert kept == "kept / broken"
    assert promised.words == "unavailable_ms, at most 1,000"
    assert promised.is_worse


def test_runs_of_two_experiments_are_compared_only_on_request(tmp_path):
    first, second = a_run(tmp_path / "a", 500), a_run(tmp_path / "b", 500, title="another")
    page = tmp_path / "diff.html"
    with pytest.raises(ConfigError, match=r"ran 'Tom & <Jerry>' and .* ran 'another'"):
        diff_runs(first, second, str(page))
    assert not page.exists()
    diff_runs(first, second, str(page), is_any_experiment=True)
    assert "Tom &amp; &lt;Jerry&gt; and another" in page.read_text()


def test_a_folder_without_a_report_of_today_names_the_way_out(tmp_path):
    run = a_run(tmp_path / "a", 500)
    report = tmp_path / "a" / "report.json"
    document = json.loads(report.read_text())
    report.write_text(json.dumps({**document, "version": 1}))
    with pytest.raises(ConfigError, match=r"has version 1.*kvorum report"):
        diff_runs(run, run, str(tmp_path / "diff.html"))
    report.write_text("{")
    with pytest.raises(CorruptData, match="not a report"):
        diff_runs(run, run, str(tmp_path / "diff.html"))
    report.unlink()
    with pytest.raises(ConfigError, match=r"has no report.json; write it with `kvorum report"):
        diff_runs(run, run, str(tmp_path / "diff.html"))
