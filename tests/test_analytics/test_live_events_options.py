"""The options of the live job are refused before anything starts."""

from __future__ import annotations

import argparse

import pytest

pytest.importorskip("pyspark")

from kvorum.analytics import events

GIVEN = ["--bootstrap", "h:9092", "--output", "out", "--checkpoint", "progress"]


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
