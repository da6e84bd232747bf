"""The parts that the command lines of the jobs share: options, the session, and refusals."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import tempfile
from collections.abc import Iterator

from pyspark.sql import SparkSession

from kvorum.analytics.session import has_java, open_session

EXIT_FAILED = 1
EXIT_USAGE = 2

DRIVER_MEMORY = "1g"
MASTER = "local[2]"
_SUBMIT = "submit"


class NoScratch(Exception):
    """No local folder for Spark's own files can be made; one sentence."""


def add_session_options(parser: argparse.ArgumentParser) -> None:
    """--master and --driver-memory."""
    parser.add_argument(
        "--master",
        type=_master,
        default=MASTER,
        help=f"a Spark master, or '{_SUBMIT}' to leave it to spark-submit (default: {MASTER})",
    )
    parser.add_argument(
        "--driver-memory",
        type=_memory,
        default=DRIVER_MEMORY,
        help=f"in local mode (default: {DRIVER_MEMORY})",
    )


def _master(text: str) -> str:
    """A value of --master. Raises ArgumentTypeError: Spark would answer with a Java trace."""
    if text != _SUBMIT and re.match(r"local(-cluster)?(\[|$)|spark://|k8s://|yarn$", text) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no master; give local[N], spark://HOST:PORT, k8s://URL, yarn or {_SUBMIT}"
        )
    return text


def _memory(text: str) -> str:
    """A value of --driver-memory. Raises ArgumentTypeError, as `_master` does."""
    if re.fullmatch(r"[1-9][0-9]*[kmgtKMGT]?[bB]?", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write one as 512m or 2g")
    return text


def master_of(options: argparse.Namespace) -> str | None:
    """The master of `add_session_options`; None leaves it to spark-submit."""
    return None if options.master == _SUBMIT else str(options.master)


@contextlib.contextmanager
def session_with_scratch(
    master: str | None, driver_memory: str, *, is_short: bool
) -> Iterator[SparkSession]:
    """A session as `open_session` makes it, and a folder for its files that ends with it.

    Raises NoScratch before anything starts.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="kvorum-spark-", ignore_cleanup_errors=True)
    except OSError as error:
        raise NoScratch(
            f"a local folder for Spark's files cannot be made: {error}; point TMPDIR at another "
            "folder"
        ) from error
    with folder as scratch:
        spark = open_session(master, driver_memory, scratch, is_short=is_short)
        try:
            yield spark
        finally:
            spark.stop()


def java_refusal(job: str) -> int | None:
    """The exit code, with a sentence, if there is no Java; None if there is one."""
    if has_java():
        return None
    return refuse(f"{job} needs Java 17 or later, on PATH or in JAVA_HOME", EXIT_USAGE)


def refuse(text: str, code: int) -> int:
    """Say why, and return the exit code."""
    sys.stderr.write(f"{text}\n")
    return code
