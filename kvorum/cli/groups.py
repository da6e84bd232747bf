"""`kvorum groups`: list, describe, delete; changes of offsets have a module of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from kvorum.cli.common import cluster_options, is_structured, show, show_outcomes
from kvorum.cli.completion import group_names
from kvorum.cli.group_offsets import delete_offsets, reset_offsets
from kvorum.cli.watch import watchable
from kvorum.client.failures import (
    EXIT_FAILED,
    EXIT_UNREACHABLE,
    CommandFailed,
    Row,
    fail_on_errors,
)
from kvorum.client.rights import on_group

if TYPE_CHECKING:
    from kvorum.client.groups.group_client import GroupClient

_STATES = (
    "Empty",
    "NotReady",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Stable",
)


_TYPES = ("classic", "consumer", "share", "streams")


@click.group()
def groups() -> None:
    """List, describe, delete groups of all types; reset or delete their offsets."""


groups.add_command(reset_offsets)
groups.add_command(delete_offsets)


@groups.command("list")
@watchable
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only groups in this state. Repeatable.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(_TYPES, case_sensitive=False),
    help="Only groups of this type. Repeatable.",
)
@cluster_options
def list_groups(states: tuple[str, ...], types: tuple[str, ...], **options: Any) -> None:
    """All groups of the cluster."""
    rows = _client(options).list_groups(list(states))
    if types:
        rows = [row for row in rows if row["type"] in types]
    show(options["output"], rows, ["group", "type", "protocol_type", "state"])


@groups.command()
@watchable
@click.argument("names", nargs=-1, required=True, shell_complete=group_names)
@click.option("--members", is_flag=True, help="A row for each member, not for each offset.")
@cluster_options
def describe(names: tuple[str, ...], members: bool, **options: Any) -> None:
    """Offsets and lag of groups NAMES, or their members."""
    found, failures = _of_each(names, _client(options).describe)
    if found:
        _show_described(options["output"], found, members=members)
    _end_with(failures)


def _show_described(output: str, found: Sequence[Row], *, members: bool) -> None:
    if is_structured(output):
        show(output, found)
        return
    key = "members" if members else "offsets"
    rows = [
        {"group": group["group"], "state": group["state"], **row}
        for group in found
        # A group without rows is shown too.
        for row in (group[key] or [{}])
    ]
    columns = ["topic", "partition", "committed_offset", "end_offset", "lag", "member_id"]
    if members:
        columns = ["member_id", "group_instance_id", "client_id", "client_host", "partitions"]
        if any(group["type"] == "streams" for group in found):
            columns += ["active_tasks", "standby_tasks"]
    show(output, rows, ["group", "state", *columns])


@groups.command()
@click.argument("names", nargs=-1, required=True, shell_complete=group_names)
@cluster_options
def delete(names: tuple[str, ...], **options: Any) -> None:
    """Delete groups NAMES, with their offsets. They must have no members."""
    rows, failures = _of_each(names, _client(options).delete)
    if rows:
        show_outcomes(options["output"], rows, ["group", "result"], done="deleted")
    try:
        fail_on_errors(
            rows, "not deleted", _why_not_deleted, lambda row: on_group("DELETE", row["group"])
        )
    except CommandFailed as error:
        failures.insert(0, error)
    _end_with(failures)


def _of_each(
    names: Sequence[str], ask: Callable[[list[str]], list[Row]]
) -> tuple[list[Row], list[CommandFailed]]:
    """The rows of each name, and the failures of the others. Without a broker that answers, the
    rest is not asked for: each name would wait for the whole timeout."""
    rows: list[Row] = []
    failures: list[CommandFailed] = []
    for name in dict.fromkeys(names):
        try:
            rows += ask([name])
        except CommandFailed as error:
            failures.append(error)
            if error.exit_code == EXIT_UNREACHABLE:
                break
    return rows, failures


def _end_with(failures: Sequence[CommandFailed]) -> None:
    """Raise CommandFailed if there are any: a line for all, with the exit code that they share."""
    if failures:
        codes = {error.exit_code for error in failures}
        code = codes.pop() if len(codes) == 1 else EXIT_FAILED
        raise CommandFailed("; ".join(map(str, failures)), code)


def _why_not_deleted(row: dict[str, Any]) -> str:
    name, error = row["group"], row["error"]
    advice = {
        "NON_EMPTY_GROUP": f"it has members, which kvorum groups describe {name} --members shows; "
        "stop them first",
        "GROUP_ID_NOT_FOUND": "there is no such group; kvorum groups list shows those that exist",
    }
    return f"{name} ({error}{': ' if error in advice else ''}{advice.get(error, '')})"


def _client(options: dict[str, Any]) -> GroupClient:
    from kvorum.cli.backends import open_backend
    from kvorum.client.cluster.broker_backend import BrokerBackend
    from kvorum.client.groups.group_client import GroupClient

    if options["bootstrap_controller"]:
        raise click.UsageError("controllers know nothing of groups: give --bootstrap-server")
    backend = open_backend(options["bootstrap_server"], None, options["timeout"])
    if not isinstance(backend, BrokerBackend):
        raise TypeError(f"no groups through a {type(backend).__name__}")
    client = GroupClient(backend, options["timeout"])
    click.get_current_context().call_on_close(client.close)
    return client
