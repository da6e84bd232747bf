"""The end of a request to a cluster that fails: a sentence, and the exit code of a command."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from kvorum.client.rights import Right, is_missing_right, on_topic, way_out
from kvorum.metadata.inspect import quorum_report
from kvorum.runtime.errors import ErrorCode

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_NO_QUORUM = 4
EXIT_NOT_AUTHORIZED = 5

_WAY_OUT = "kvorum acls"
"""A controller's reason for a missing right names this command itself."""

Row = dict[str, Any]
"""One line of an answer, with the keys that `-o json` prints."""
_said: set[str] | None = None


class CommandFailed(Exception):
    """A command ends here: one sentence on stderr and an exit code.

    hint: the end of the sentence, for an operator whose options may be wrong. reason: the sentence
    without it. error: Kafka's name of the error that the cluster answered, if it did.
    """

    def __init__(
        self, reason: str, exit_code: int = EXIT_FAILED, *, hint: str = "", error: str = ""
    ) -> None:
        super().__init__(f"{reason}{hint}")
        self.reason = reason
        self.exit_code = exit_code
        self.error = error


def check(code: int, message: str | None, subject: str, *rights: Right) -> None:
    """Raise CommandFailed for an error code of the cluster. rights: see `refusal`."""
    if code != ErrorCode.NONE:
        raise refusal(code, message, subject, *rights)


def check_topic(code: int, message: str | None, name: str, operation: str) -> None:
    """Raise CommandFailed for the error code of a request that needs an operation on a topic."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise no_topic(name)
    check(code, message, f"topic {name}", on_topic(operation, name))


def no_topic(name: str) -> CommandFailed:
    """The failure for a topic that does not exist."""
    return CommandFailed(
        f"topic {name}: UNKNOWN_TOPIC_OR_PARTITION: there is no such topic; make it with kvorum "
        f"topics create {name}"
    )


def exit_code_of(*errors: str) -> int:
    """The exit code for errors by their names in Kafka: EXIT_NOT_AUTHORIZED if the user lacks
    rights, and nothing else is wrong."""
    is_access = [is_missing_right(error) for error in errors if error != "NONE"]
    return EXIT_NOT_AUTHORIZED if is_access and all(is_access) else EXIT_FAILED


def fail_on_errors(
    rows: Sequence[Row],
    what: str,
    name_of: Callable[[Row], str],
    right_of: Callable[[Row], Right] | None = None,
) -> None:
    """Raise CommandFailed if rows have an `error`. what: the beginning of the sentence, such as
    `not deleted`; name_of: names the thing of a row in it; right_of: the right that it needs."""
    failed = [row for row in rows if row["error"] != "NONE"]
    if not failed:
        return
    text = f"{what}: {', '.join(map(name_of, failed))}"
    refused_rows = [row for row in failed if is_missing_right(row["error"])]
    if refused_rows:
        rights = map(right_of, refused_rows) if right_of else ()
        text += f"; {way_out(refused_rows[0]['error'], *rights)}"
    raise CommandFailed(text, exit_code_of(*(row["error"] for row in failed)))


def refusal(code: int, message: str | None, subject: str, *rights: Right) -> CommandFailed:
    """The failure of a command whose request about a subject was refused. rights: those that the
    request needs, for a user who lacks them."""
    if message and quorum_report.is_sentence(message):
        return CommandFailed(quorum_report.without_age(message), EXIT_NO_QUORUM)
    try:
        name = ErrorCode(code).name
    except ValueError:
        name = f"error {code}"
    exit_code = exit_code_of(name)
    if code in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT):
        exit_code = EXIT_NO_QUORUM
    parts = [subject, name, message or ""]
    item = re.escape(subject.rpartition(" ")[2])
    if message and re.search(rf"(?<![\w.-]){item}(?![\w.-])", message):
        del parts[0]  # the message itself names the subject
    if is_missing_right(name) and _WAY_OUT not in (message or ""):
        # Kafka's reason, such as `Cluster authorization failed.`, repeats the name of the error.
        said = [] if re.search(r"authorization failed\.?$", message or "") else parts[2:]
        parts = [subject, name, *said, way_out(name, *rights)]
    return CommandFailed(": ".join(filter(None, parts)), exit_code, error=name)


def warn(text: str) -> None:
    """Print a line on stderr; the command continues."""
    if _said is not None:
        kind = re.sub(r"[0-9.]+", "", text)
        if kind in _said:
            return
        _said.add(kind)
    click.echo(f"kvorum: {text}", err=True)


@contextlib.contextmanager
def each_warning_once() -> Iterator[None]:
    """Within the block, do not repeat a warning that differs only in its numbers. For a command
    that asks the cluster again and again."""
    global _said
    _said = set()
    try:
        yield
    finally:
        _said = None
