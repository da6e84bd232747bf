from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from msgspec import convert

from kvorum.chaos.history import Send
from kvorum.chaos.outages.timeline import build_timeline
from kvorum.chaos.report.charts import NARROW, WIDE, draw
from kvorum.chaos.report.figures import build_report
from kvorum.chaos.report.report import JUNIT_XML, RunResult, write_report
from kvorum.chaos.run_record import RunRecord
from kvorum.runtime.errors import ConfigError
from tests.command import kvorum

from .histories import HistoryBuilder, good_history, pipelined
from .runs import ACCEPTED, References, record, write_run


def run_history() -> HistoryBuilder:
    history = good_history()
    history.fault(0, 30, 35, led=[0], held=[0, 1], description="cut a -> <b>")
    return history


def test_good_run_passes_and_its_page_stands_alone(tmp_path):
    write_run(tmp_path, run_history())
    report = write_report(str(tmp_path))
    assert report.verdict == "passed"
    page = Path(report.report_html).read_text()
    references = References()
    references.feed(page)
    assert references.found == []
    assert "script" not in references.tags
    assert "@import" not in page
    assert "url(" not in page
    assert "svg" in references.tags
    assert "Tom &amp; &lt;Jerry&gt;" in page
    assert "cut a -&gt; &lt;b&gt;" in page
    assert "kvorum chaos run x.yaml --seed 4" in page


def test_json_tells_what_the_page_tells(tmp_path):
    write_run(tmp_path, run_history())
    document = json.loads(Path(write_report(str(tmp_path)).report_json).read_text())
    assert document["load"]["acknowledged"] == 20
    assert document["faults"][0]["led"]["partitions"] == [0]
    assert document["faults"][0]["others"]["partitions"] == [1]
    assert document["faults"][0]["lasted_ms"] == 5
    assert {check["check"] for check in document["checks"]} >= {
        "lost-write",
        "duplicate",
        "two-leaders",
    }
    assert document["rerun"] == "kvorum chaos run x.yaml --seed 4"


def junit_of(report: RunResult) -> Path:
    return Path(report.run_dir) / JUNIT_XML


def outcomes(report) -> dict[str, str]:
    """The outcome in the JUnit file of each case that did not pass, by name."""
    suite = ElementTree.parse(junit_of(report)).getroot()
    return {case.get("name"): case[0].tag for case in suite if len(case)}


def test_a_broken_guarantee_is_told_in_the_same_words_everywhere(tmp_path):
    history = HistoryBuilder()
    history.written(0, 0, 0)
    history.final(0, [(0, 0), (0, 1)])
    write_run(tmp_path, history)
    report = write_report(str(tmp_path))
    words = "1 broken: no record is in the log at two offsets"
    assert f"duplicate: {words}" in report.reasons
    suite = ElementTree.parse(junit_of(report)).getroot()
    (duplicate,) = [case[0] for case in suite if case.get("name") == "duplicate"]
    assert duplicate.get("message") == words


def test_broken_promise_fails_the_run_in_every_format(tmp_path):
    history = run_history()
    history.written(0, 10, 10)
    write_run(tmp_path, history)
    report = write_report(str(tmp_path))
    assert report.verdict == "failed"
    suite = ElementTree.parse(junit_of(report)).getroot()
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert "verdict" in failed
    assert "high-watermark-back" in failed
    assert suite.get("failures") == str(len(failed))
    assert "was committed" in Path(report.report_html).read_text()


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({"is_converged": False}, "failed", "did not come back"),
        ({"steady_state_after": [{**ACCEPTED, "is_accepted": False}]}, "failed", "after the met"),
        ({"steady_state_before": [{**ACCEPTED, "is_accepted": False}]}, "inconclusive", "before"),
        ({"died_unasked": ["broker-101"]}, "failed", "broker-101 died"),
        ({"error": "KvorumError: x"}, "inconclusive", "ended early"),
        ({"steps": [{"name": "s", "is_done": False, "reason": "nobody", "description": ""}]},
         "inconclusive", "skipped: nobody"),
    ],
)  # fmt: skip
def test_verdict_follows_the_run(changes, verdict, words):
    from kvorum.chaos.checks import run_checks_of

    events = run_history().events
    judged = convert(record(**changes), RunRecord)
    report = build_report(judged, build_timeline(events), run_checks_of(events))
    assert report.verdict == verdict
    assert words in " ".join(report.reasons)


def unread_history() -> HistoryBuilder:
    """Partition 1 has no final read."""
    history = run_history()
    history.events = [
        event
        for event in history.events
        if not (event.partition == 1 and (event.process == "final-read" or event.f == "observe"))
    ]
    return history


def test_what_was_never_read_is_not_known(tmp_path):
    write_run(tmp_path, unread_history())
    report = write_report(str(tmp_path))
    assert report.verdict == "failed"
    assert "lost not known, duplicated not known, reordered not known" in report.summary
    assert "the final read is incomplete" in report.summary
    document = json.loads(Path(report.report_json).read_text())
    assert [document[name] for name in ("lost", "duplicated", "reordered")] == [None] * 3
    page = Path(report.report_html).read_text()
    assert page.count('<b class="doubt">not known</b>') == 3


def test_an_interrupted_run_is_inconclusive_whatever_its_readers_had_not_reached(tmp_path):
    history = unread_history()
    history.events = [e for e in history.events if e.f != "poll" or e.process == "final-read"]
    write_run(tmp_path, history)
    assert write_report(str(tmp_path)).verdict == "failed", "a run that went to its end"
    write_run(tmp_path, history, error="interrupted", is_final_read_complete=False)
    report = write_report(str(tmp_path))
    assert (report.verdict, report.reasons) == (
        "inconclusive",
        ("the run ended early: interrupted",),
    )
    assert outcomes(report) == {"unread": "skipped", "verdict": "error"}
    suite = ElementTree.parse(junit_of(report)).getroot()
    assert [suite.get(name) for name in ("failures", "errors", "skipped")] == ["0", "1", "1"]
    assert "(undecided)" in Path(report.report_html).read_text()


def test_a_run_that_ends_early_breaks_no_promise_of_a_least_number(tmp_path):
    promises = {"isr_shrinks_at_least": 1, "acknowledged_at_least": 50}
    configuration = {"controllers": 3, "brokers": 3, "promises": promises}
    write_run(tmp_path, run_history(), configuration=configuration)
    assert write_report(str(tmp_path)).verdict == "failed", "a run that went to its end"
    error = "ToxiproxyEnded: toxiproxy ended with -9 in the middle of the run"
    write_run(tmp_path, run_history(), configuration=configuration, error=error)
    report = write_report(str(tmp_path))
    assert report.verdict == "inconclusive"
    assert report.reasons[0] == f"the run ended early: {error}"
    assert "was 20 when the run ended early, and at least 50 is promised" in report.reasons[2]
    undecided = dict.fromkeys(promises, "skipped")
    assert outcomes(report) == {**undecided, "verdict": "error"}


def test_the_reasons_of_a_failed_run_say_why_it_ended_early(tmp_path):
    write_run(tmp_path, run_history(), error="interrupted", died_unasked=["broker-101"])
    report = write_report(str(tmp_path))
    assert (report.verdict, report.reasons) == (
        "failed",
        ("broker-101 died though no fault killed it", "the run ended early: interrupted"),
    )


def test_what_was_found_in_a_part_is_a_least_number(tmp_path):
    history = unread_history()
    history.consumed(0, [(3, 10)], process="final-read")
    write_run(tmp_path, history)
    report = write_report(str(tmp_path))
    assert "lost not known, at least 1 duplicated, reordered not known" in report.summary
    assert '<b class="bad">at least 1</b>' in Path(report.report_html).read_text()


def test_the_headline_gives_the_silence_of_the_cluster_and_of_the_worst_partition(tmp_path):
    history = HistoryBuilder()
    for value in range(10):
        history.written(0, value, value, at_ms=1_000 + 100 * value, latency_ms=100)
    history.written(1, 0, 0, at_ms=1_050, latency_ms=100)
    history.written(1, 1, 1, at_ms=2_000, latency_ms=640)
    history.events.sort(key=lambda event: event.time_ms)
    for partition, count in ((0, 10), (1, 2)):
        history.consumed(partition, [(value, value) for value in range(count)])
        history.final(partition, [(value, value) for value in range(count)])
    write_run(tmp_path, history)
    report = write_report(str(tmp_path))
    assert report.summary.endswith("longest silence 100 ms of the cluster, 640 ms of partition 1")
    assert report.summary.startswith("0 faults: 12 records acknowledged, 0 lost, 0 duplicated")
    page = Path(report.report_html).read_text()
    assert "<b>640 ms</b><span>longest of one partition" in page


@pytest.mark.parametrize("shape", [WIDE, NARROW])
def test_the_picture_and_the_table_of_faults_have_one_clock(shape):
    history = HistoryBuilder()
    for value in range(200):
        history.written(0, value, value, at_ms=1_280 + 20 * value)
    history.fault(0, 3_000, 3_500, led=[0], held=[0])
    timeline = build_timeline(history.events)
    picture = ElementTree.fromstring(draw(timeline, shape))
    ticks = {
        text.text: float(text.get("x"))
        for text in picture.iter("text")
        if text.get("class") == "label middle"
    }
    assert list(ticks) == ["2 s", "3 s", "4 s", "5 s"]
    (bar,) = (rect for rect in picture.iter("rect") if rect.get("class") == "bar kill")
    assert float(bar.get("x")) == ticks["3 s"]


@pytest.mark.parametrize("shape", [WIDE, NARROW])
def test_no_label_of_the_picture_is_cut(shape):
    history = HistoryBuilder()
    pipelined(history, 0, 9_000)
    long = "latency leader:orders/0 <-> follower:orders/0 latency_ms=150 jitter_ms=50"
    for number, (begin_ms, end_ms) in enumerate(((10, 8_990), (4_000, 4_100), (8_500, 8_990))):
        history.fault(number, begin_ms, end_ms, description=long, kind="latency")
    history.events.sort(key=lambda event: event.time_ms)
    history.add("p", "invoke", "send", ops=(Send("a-second-topic", 0, 1),), at_ms=8_999)
    picture = ElementTree.fromstring(draw(build_timeline(history.events), shape))
    assert "a-second-topic/0" in {text.text for text in picture.iter("text")}
    for text in picture.iter("text"):
        x, width = float(text.get("x")), len(text.text) * shape.character
        style = text.get("class")
        left = x - width if "before" in style else x - width / 2 if "middle" in style else x
        assert left >= -1 and left + width <= shape.width + 1, text.text
        assert "…" not in text.text


def silent_run(tmp_path, *faults: tuple[int, int], until_ms: int = 4_000, **changes):
    """Partition 0 is silent from 2 s on."""
    history = HistoryBuilder()
    pipelined(history, 0, until_ms + 2_000, silent={0: (2_000, until_ms)})
    for number, (begin_ms, end_ms) in enumerate(faults):
        history.fault(
            number, begin_ms, end_ms, name="hang", held=[0, 1], roles=["b: leader of t/0"]
        )
    history.events.sort(key=lambda event: event.time_ms)
    for partition in (0, 1):
        values = [(value, value) for value in range((until_ms + 2_000) // 10)]
        history.consumed(partition, values)
        history.final(partition, values)
    write_run(tmp_path, history, **changes)
    return write_report(str(tmp_path))


def test_the_headline_names_the_topic_where_several_have_a_partition_of_that_number(tmp_path):
    history = HistoryBuilder()
    pipelined(history, 0, 2_000)
    history.transacted(sends=[(0, 20, 0)], topic="bank")
    write_run(tmp_path, history)
    assert write_report(str(tmp_path)).summary.endswith(" of orders/0")


def test_a_request_of_an_operator_lasted_as_long_as_it_took(tmp_path):
    history = good_history()
    history.fault(0, 218.0, 218.0, kind="remove_voter", injection_ms=188.0)
    write_run(tmp_path, history)
    report = write_report(str(tmp_path))
    (fault,) = json.loads(Path(report.report_json).read_text())["faults"]
    assert fault["lasted_ms"] == 188.0
    assert '<td class="n" data-label="lasted">188 ms</td>' in Path(report.report_html).read_text()


def test_a_fault_of_every_node_takes_few_lines(tmp_path):
    brokers = [f"broker-{number}" for number in (101, 102, 103, 104)]
    nodes = [*brokers, *(f"controller-{number}" for number in (1, 2, 3))]
    history = good_history()
    for number, struck in enumerate((nodes, brokers, brokers[:3], [*brokers[:3], nodes[4]])):
        roles = [f"{node}: a role" for node in struck]
        history.fault(number, 30, 35, nodes=struck, roles=roles)
    write_run(tmp_path, history, configuration={"controllers": 3, "brokers": 4}, description="-")
    report = write_report(str(tmp_path))
    page = Path(report.report_html).read_text()
    for words in ("all 7 nodes", "all 4 brokers", "broker-101, broker-102, broker-103<"):
        assert f'<td data-label="struck">{words}' in page
    assert "broker-103, controller-1" in page
    assert "<summary>their 7 roles</summary>" in page
    assert json.loads(Path(report.report_json).read_text())["description"] == ""


def failed_cases(report) -> list[str]:
    suite = ElementTree.parse(junit_of(report)).getroot()
    return [case.get("name") for case in suite if case.find("failure") is not None]


def test_an_outage_without_a_fault_fails_the_run(tmp_path):
    report = silent_run(tmp_path, until_ms=6_000)
    assert report.verdict == "failed"
    assert "outage of orders/0 for 4,000 ms at 2.0 s, and no fault explains it" in report.reasons
    assert failed_cases(report) == ["owned", "verdict"]
    assert '<span class="bad">no fault</span>' in Path(report.report_html).read_text()


NO_HIT = {"delayed_syncs": 0, "failed_calls": 0}


@pytest.mark.parametrize(
    ("kind", "ended", "words", "verdict"),
    [
        ("slow_disk",
         {"hits": {"broker-101": {**NO_HIT, "delayed_syncs": 2}, "broker-102": NO_HIT}},
         "2 fsyncs delayed", "passed"),
        ("fill_disk", {"hits": {"broker-101": {**NO_HIT, "failed_calls": 1}}},
         "1 disk call failed", "passed"),
        ("fail_disk", {"hits": {"broker-101": {**NO_HIT, "failed_calls": 1_234}}},
         "1,234 disk calls failed", "passed"),
        ("packet_loss", {"lost_packets": 7}, "7 packets lost", "passed"),
        ("slow_disk", {"hits": {"broker-101": NO_HIT, "broker-102": NO_HIT}},
         "hit nothing", "inconclusive"),
        ("packet_loss", {"lost_packets": 0}, "hit nothing", "inconclusive"),
        ("step_clock", {"hits": {"broker-101": NO_HIT}}, "", "passed"),
        ("kill", {}, "", "passed"),
    ],
)  # fmt: skip
def test_a_fault_of_disks_or_packets_tells_its_hits_and_proves_nothing_without(
    tmp_path, kind, ended, words, verdict
):
    history = good_history()
    history.fault(0, 30, 35, name="slow it", kind=kind, description="of b", ended=ended)
    write_run(tmp_path, history)
    report = write_report(str(tmp_path))
    assert report.verdict == verdict
    if verdict == "inconclusive":
        assert report.reasons == ("fault slow it (of b) hit no disk call and no packet",)
    (fault,) = json.loads(Path(report.report_json).read_text())["faults"]
    assert (fault["hits"], fault["lost_packets"]) == (
        ended.get("hits", {}),
        ended.get("lost_packets"),
    )
    page = Path(report.report_html).read_text()
    mark = "doubt" if verdict == "inconclusive" else "soft"
    assert (f'<span class="{mark}">{words}</span>' in page) is bool(words)


def test_a_fault_that_was_undone_at_once_needs_no_hit(tmp_path):
    history = good_history()
    history.fault(0, 30, 30, kind="packet_loss", ended={"lost_packets": 0})
    write_run(tmp_path, history)
    assert write_report(str(tmp_path)).verdict == "passed"


def test_the_page_says_from_which_fault_an_outage_is_continued(tmp_path):
    history = HistoryBuilder()
    pipelined(history, 0, 8_000, silent={0: (2_000, 6_000)})
    history.fault(0, 1_999, 3_000, name="fill <it>", held=[0])
    history.fault(1, 4_000, 5_000, name="later", held=[0])
    history.events.sort(key=lambda event: event.time_ms)
    write_run(tmp_path, history)
    report = write_report(str(tmp_path))
    first, later = json.loads(Path(report.report_json).read_text())["faults"]
    assert first["others"]["continued_from"] == []
    assert later["others"]["continued_from"] == ["fill <it>"]
    assert later["others"]["unavailable_max_ms"] == 0
    assert "continued from fill &lt;it&gt;" in Path(report.report_html).read_text()


def test_an_outage_with_which_toxiproxy_ends_the_run_is_not_the_clusters(tmp_path):
    error = "ToxiproxyError: toxiproxy at 127.0.0.1:8474 gave no answer within 5 s"
    limits = {"longest_partition_silence_ms": 1_000}
    configuration = {"controllers": 3, "brokers": 3, "promises": limits}
    report = hung_run(tmp_path, error="interrupted", configuration=configuration)
    assert report.verdict == "failed", "a cluster that hangs is no fault of the lab"
    error_of_a_path = "KvorumError: /srv/toxiproxy/run is not writable"
    report = hung_run(tmp_path, error=error_of_a_path, configuration=configuration)
    assert report.verdict == "failed", "the name of a folder is no error of toxiproxy"
    report = hung_run(tmp_path, error=error, is_lab_failure=True, configuration=configuration)
    assert report.verdict == "inconclusive"
    assert report.reasons[0] == f"the run ended early: {error}"
    assert "outage of orders/0 from 2.0 s to the end, with toxiproxy" in report.reasons


def hung_run(tmp_path, **changes):
    """Partition 0 is silent from 2 s to the end of the load."""
    history = HistoryBuilder()
    pipelined(history, 0, 8_000, silent={0: (2_000, 9_000)})
    history.events = [event for event in history.events if event.time_ms < 8_000]
    write_run(tmp_path, history, is_final_read_complete=False, **changes)
    return write_report(str(tmp_path))


def test_an_outage_with_a_fault_is_shown_with_it_and_with_the_roles_struck(tmp_path):
    report = silent_run(tmp_path, (1_900, 3_000))
    assert (report.verdict, failed_cases(report)) == ("passed", [])
    document = json.loads(Path(report.report_json).read_text())
    assert {tuple(row["owners"]) for row in document["outages"]["rows"]} == {("hang",)}
    assert document["faults"][0]["others"]["unavailable_max_ms"] == pytest.approx(2_005, abs=11)
    page = Path(report.report_html).read_text()
    assert "b: leader of t/0" in page
    assert "0 of 1" in page


def test_a_broken_promise_fails_the_run_and_a_kept_one_does_not(tmp_path):
    promises = {"unavailable_ms": 2_500, "longest_partition_silence_ms": 1_000}
    configuration = {"controllers": 3, "brokers": 3, "promises": promises}
    report = silent_run(tmp_path, (1_900, 3_000), configuration=configuration)
    assert report.verdict == "failed"
    (reason,) = report.reasons
    assert reason.startswith("promise longest_partition_silence_ms: ")
    assert failed_cases(report) == ["longest_partition_silence_ms", "verdict"]
    page = Path(report.report_html).read_text()
    assert "Promises of the experiment" in page and "at most 1,000" in page


def test_a_promise_that_cannot_be_measured_leaves_the_run_undecided(tmp_path):
    configuration = {"controllers": 3, "brokers": 3, "promises": {"time_to_elect_ms": 1_000}}
    report = silent_run(tmp_path, (1_900, 3_000), configuration=configuration)
    assert report.verdict == "inconclusive"
    assert "could not be measured" in report.reasons[0]


def test_the_report_of_many_faults_stays_small_and_says_what_it_leaves_out(tmp_path):
    history = good_history()
    for number in range(1_000):
        history.fault(number, 100 + 10 * number, 105 + 10 * number, held=[0, 1])
    write_run(tmp_path, history)
    report = write_report(str(tmp_path))
    page = Path(report.report_html).read_text()
    assert "and 800 more faults" in page
    assert "(and 970 more)" in page
    assert len(page) < 1_000_000
    assert Path(report.report_json).stat().st_size < 1_000_000


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "no history event: Input data was truncated"),
        ('{"index":1}', "missing required field `time_ms`"),
        ('{"index":1,"time_ms":1,"process":"p","type":"ok","f":"x"}', "enum value 'x'"),
        ('{"index":1,"time_ms":"1","process":"p","type":"ok","f":"send"}', "$.time_ms"),
        (
            '{"index":1,"time_ms":1,"process":"p","type":"ok","f":"poll",'
            '"ops":[["poll","orders",0,[1],[1,2]]]}',
            "as many",
        ),
    ],
)
def test_a_damaged_line_of_a_history_is_one_sentence(tmp_path, line, words):
    write_run(tmp_path, run_history())
    path = tmp_path / "history.jsonl"
    lines = path.read_text().splitlines()
    lines[4] = line
    path.write_text("\n".join(lines) + "\n")
    code, out, err = kvorum("report", tmp_path)
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert f"{path} at byte " in err and "line 5 is no history event: " in err and words in err


@pytest.mark.parametrize("command", ["report", "lake add --lake {lake}"])
@pytest.mark.parametrize("end", ["within a line", "after a line"])
def test_a_history_that_was_cut_after_its_run_accuses_nobody(tmp_path, command, end):
    folder = tmp_path / "run"
    folder.mkdir()
    write_run(folder, run_history())
    path = folder / "history.jsonl"
    whole = path.read_bytes()
    (folder / "run.json").write_text(json.dumps(record(history_bytes=len(whole))))
    cut = whole[: whole.rindex(b"\n", 0, -1) + (1 if end == "after a line" else -5)]
    path.write_bytes(cut)
    words = command.format(lake=tmp_path / "lake").split()
    code, out, err = kvorum(*words, folder)
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert f"{path} at byte {len(cut)}: the history was cut off: it had {len(whole)} bytes" in err
    path.write_bytes(whole)
    assert kvorum("report", folder)[0] == 0


@pytest.mark.parametrize(
    ("text", "words"), [("{", "Expecting"), ("[]", "not the record"), ("{}", "it has no title")]
)
def test_a_damaged_record_of_a_run_is_one_sentence(tmp_path, text, words):
    write_run(tmp_path, run_history())
    (tmp_path / "run.json").write_text(text)
    code, out, err = kvorum("report", tmp_path)
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert f"{tmp_path}/run.json at byte 0: not the record of a run" in err and words in err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"is_converged": False}, "failed: the cluster did not come back to full ISRs after heal"),
        ({"error": "KvorumError: x"}, "inconclusive: the run ended early: KvorumError: x"),
        (
            {"died_unasked": ["broker-101", "broker-102"]},
            "failed: broker-101 died though no fault killed it (and 1 more; see the report)",
        ),
    ],
)
def test_the_line_with_the_verdict_gives_its_reason(tmp_path, changes, words):
    write_run(tmp_path, run_history(), **changes)
    code, _, err = kvorum("report", tmp_path)
    assert code == 6
    assert err.startswith(f"kvorum: the verdict is {words}")


def test_run_without_any_acknowledgement_proves_nothing(tmp_path):
    write_run(tmp_path, HistoryBuilder())
    report = write_report(str(tmp_path))
    assert report.verdict == "inconclusive"


def test_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="holds no run"):
        write_report(str(tmp_path))
