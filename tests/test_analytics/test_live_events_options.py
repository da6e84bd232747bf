"""The options of the live job are refused before anything starts."""

from __future__ import annotations

import argparse
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from kvorum.analytics import events, job

GIVEN = ["--bootstrap", "h:9092", "--output", "out", "--checkpoint", "progress"]


@pytest.fixture
def handlers() -> Iterator[None]:
    """The handlers of signals as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_times_are_in_ms() -> None:
    options = events.parser().parse_args(GIVEN)
    assert (options.window, options.watermark, options.trigger) == (10_000, 60_000, 5_000)
    assert [events.duration_ms(text) for text in ("500ms", "2h", "1d")] == [
        500,
        7_200_000,
        86_400_000,
    ]


@pytest.mark.parametrize("text", ["", "10", "0s", "-1s", "1.5s", "1 week", "9999999999s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time such as 500ms"):
        events.duration_ms(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--bootstrap", "h"], "'h' is not HOST:PORT"),
        (["--bootstrap", "h:1,"], "is not HOST:PORT"),
        (["--window", "0s"], "'0s' is not a time"),
        (["--offsets-per-trigger", "0"], "'0' is not a whole number above 0"),
        (["--checkpoint", "out/"], "--output and --checkpoint are the same folder; name two"),
    ],
)
def test_bad_options_are_refused_in_a_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        events.main([*GIVEN, *arguments])
    assert end.value.code == 2
    assert words in capsys.readouterr().err


def test_the_jobs_own_error_is_found_behind_a_traceback_of_spark() -> None:
    text = (
        "[STREAM_FAILED] Query terminated\nTraceback (most recent call last):\n  File x\n"
        "kvorum.analytics.kafka_source.errors.ReadFailed: topic __kvorum_events does not exist in "
        "the cluster at h:9092; create it, or correct the option that names it\n\tat org.apache"
    )
    assert events.sentence(RuntimeError(text)).endswith(
        "names it; brokers make it with metadata.events.topic.enable=true"
    )
    assert events.sentence(RuntimeError("Out of memory\n\tat x")) == "Spark failed: Out of memory"


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(
    ("main", "arguments"), [(events.main, GIVEN), (job.main, ["--lake", "l", "--output", "o"])]
)
def test_a_session_that_cannot_be_opened_leaves_no_scratch_folder(
    main: Callable[[list[str]], int],
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("no session")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", fail)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(RuntimeError, match="no session"):
        main(arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(
    ("main", "arguments"), [(events.main, GIVEN), (job.main, ["--lake", "l", "--output", "o"])]
)
def test_a_scratch_folder_that_cannot_be_made_is_named_in_a_sentence(
    main: Callable[[list[str]], int],
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert said.startswith("a local folder for Spark's files cannot be made: ")
    assert said.endswith("; point TMPDIR at another folder\n")
