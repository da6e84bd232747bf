"""Histories in Jepsen's form: the golden file, and what an EDN reader makes of it."""

from __future__ import annotations

from pathlib import Path

import edn_format
from edn_format import Keyword

from kvorum.chaos.report.edn import edn_lines, write_edn

from .histories import HistoryBuilder, full_history

GOLDEN = Path(__file__).parents[1] / "golden" / "history.edn"
INDEX, PROCESS, TYPE, F, VALUE, TIME = map(
    Keyword, ("index", "process", "type", "f", "value", "time")
)


def rich_history() -> HistoryBuilder:
    """Everything that an EDN file can have."""
    history = full_history()
    history.sent("invoke", 0, 90)
    history.sent("invoke", 0, 91)
    history.sent("info", 0, 90, error='"_MSG_TIMED_OUT" \\ ü')
    history.sent("fail", 0, 91, error="MSG_SIZE_TOO_LARGE")
    history.transacted("info", sends=[(0, 92, 12), (1, 93, -1)], polls={1: [(0, 0)]})
    history.revoked("member-2", 0, type="info")
    history.fault(0, 500, 600)
    return history


def operations(history: HistoryBuilder) -> list[dict]:
    return [dict(item) for item in edn_format.loads_all("\n".join(edn_lines(history.events)))]


def test_the_export_is_the_golden_one(tmp_path):
    source, target = tmp_path / "history.jsonl", tmp_path / "history.edn"
    rich_history().write(str(source))
    count = write_edn(str(source), str(target))
    text = target.read_text(encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
    assert count == sum(line.startswith("{") for line in text.splitlines())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["history.edn", "history.jsonl"]


def test_every_process_has_one_operation_under_way_and_none_after_an_unknown_outcome():
    open_invocations: dict[object, object] = {}
    crashed = set()
    found = operations(rich_history())
    assert [op[INDEX] for op in found] == list(range(len(found)))
    assert [op[TIME] for op in found] == sorted(op[TIME] for op in found)
    for op in found:
        process = op[PROCESS]
        if process == Keyword("nemesis"):
            continue
        assert process not in crashed
        if op[TYPE] == Keyword("invoke"):
            assert process not in open_invocations
            open_invocations[process] = op[F]
        else:
            assert open_invocations.pop(process) == op[F]
            if op[TYPE] == Keyword("info"):
                crashed.add(process)
    assert not open_invocations
    assert len(crashed) == 2


def test_sends_under_way_at_once_take_process_numbers_of_their_own():
    history = HistoryBuilder()
    for value in range(3):
        history.sent("invoke", 0, value)
    for value in (1, 0, 2):
        history.sent("ok", 0, value, value)
    history.sent("invoke", 0, 3)
    found = [(op[PROCESS], str(op[TYPE])) for op in operations(history)]
    assert found == [
        (0, ":invoke"), (1, ":invoke"), (2, ":invoke"), (1, ":ok"), (0, ":ok"), (2, ":ok"),
        (0, ":invoke"),
    ]  # fmt: skip


def test_a_client_that_waits_for_its_answers_keeps_its_number():
    numbers = {op[PROCESS] for op in operations(full_history()) if op[F] == Keyword("poll")}
    # consumer-1, the final read and two members.
    assert len(numbers) == 4


def test_polls_sends_and_transactions_have_jepsens_shape():
    history = HistoryBuilder()
    history.written(0, 7, 3)
    history.consumed(0, [(7, 3), (8, 4)])
    history.transacted(sends=[(1, 9, -1)], polls={0: [(7, 3)]})
    values = [edn_format.dumps(op[VALUE]) for op in operations(history)]
    assert values == [
        "[[:send 0 7]]",
        "[[:send 0 [3 7]]]",
        "[[:poll]]",
        "[[:poll {0 [[3 7] [4 8]]}]]",
        "[[:send 1 9]]",
        "[[:poll {0 [[3 7]]}] [:send 1 [nil 9]]]",
    ]


def test_an_assignment_names_all_that_a_member_owns():
    history = HistoryBuilder()
    history.assigned("member-1", 0, 1)
    history.assigned("member-1", 2)
    history.revoked("member-1", 1)
    found = [edn_format.dumps(op[VALUE]) for op in operations(history) if op[TYPE] == Keyword("ok")]
    assert found == ["[0 1]", "[0 1 2]", "[0 2]"]
