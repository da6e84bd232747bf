"""`kvorum partitions`: add, elect, reassign."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

from kvorum.cli.common import (
    INT32_MAX,
    INT64_MAX,
    cluster_options,
    is_structured,
    show,
    show_outcomes,
)
from kvorum.cli.restore import restore
from kvorum.client.failures import CommandFailed, Row, fail_on_errors, warn

if TYPE_CHECKING:
    from kvorum.cli.backends import Backend
    from kvorum.cli.config_backends import ConfigBackend
    from kvorum.cli.partition_backends import PartitionBackend
    from kvorum.cli.reassigned_directories import ReassignedDirectories
    from kvorum.cli.reassignment_file import Assignment

_ACTIONS = {
    "generate": "Propose a plan for the topics in FILE.",
    "execute": "Start the moves in FILE.",
    "verify": "Show the progress of the moves in FILE.",
    "cancel": "Cancel the moves in FILE.",
    "list": "List the moves under way; needs no FILE.",
}
_OUTCOME = ["topic", "partition", "result", "message"]
_ONGOING = ["topic", "partition", "replicas", "adding_replicas", "removing_replicas"]
_VERIFIED = ["topic", "partition", "state", "replicas", "target"]
_VERIFIED_DIRECTORIES = ["broker_id", "log_dir", "target_log_dir"]


@click.group()
def partitions() -> None:
    """Add partitions, elect leaders, move replicas, restore damaged ones."""


partitions.add_command(restore)


@partitions.command()
@click.argument("topic")
@click.option(
    "--partitions",
    "count",
    type=click.IntRange(1, INT32_MAX),
    required=True,
    help="Total number of partitions of the topic.",
)
@click.option(
    "--assignment",
    metavar="ID:ID,ID:ID",
    help="Replicas of each new partition; by default the controller places them.",
)
@click.option("--validate-only", is_flag=True, help="Check the request; change nothing.")
@cluster_options
def add(
    topic: str, count: int, assignment: str | None, validate_only: bool, **options: Any
) -> None:
    """Give TOPIC more partitions; its present partitions do not change."""
    assignments = _assignments(assignment)
    _, asked = _open(options)
    asked.add(topic, count, assignments, validate_only=validate_only)
    show(options["output"], {"topic": topic, "partitions": count, "validate_only": validate_only})


@partitions.command()
@click.argument("targets", nargs=-1, metavar="[TOPIC|TOPIC:PARTITION]...")
@click.option("--all", "is_all", is_flag=True, help="All partitions of the cluster.")
@click.option(
    "--unclean",
    is_flag=True,
    help="Elect an out-of-sync replica if none is in sync: committed records may be lost.",
)
@cluster_options
def elect(targets: tuple[str, ...], is_all: bool, unclean: bool, **options: Any) -> None:
    """Make the preferred replica, the first of each partition's list, the leader."""
    from kvorum.cli.partition_backends import PREFERRED, UNCLEAN

    if is_all == bool(targets):
        raise click.UsageError("name topics or partitions, or give --all")
    backend, asked = _open(options)
    chosen = None if is_all else _targets(backend, targets)
    rows = asked.elect(chosen, UNCLEAN if unclean else PREFERRED)
    show_outcomes(options["output"], rows, _OUTCOME, done="elected")
    _fail_on_errors(rows, "not elected", besides=("ELECTION_NOT_NEEDED",))


def _action_options(command: Callable[..., None]) -> Callable[..., None]:
    for name, text in reversed(_ACTIONS.items()):
        command = click.option(f"--{name}", f"is_{name}", is_flag=True, help=text)(command)
    return command


@partitions.command()
@click.argument("file", type=click.File("r", encoding="utf-8"), required=False)
@_action_options
@click.option("--broker-list", metavar="ID,ID", help="For --generate: the brokers to use.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="For --generate: write the proposed plan here too, for --execute.",
)
@click.option("--disable-rack-aware", is_flag=True, help="For --generate: ignore the racks.")
@click.option(
    "--additional", is_flag=True, help="For --execute: even if other moves are under way."
)
@click.option(
    "--throttle",
    type=click.IntRange(1, INT64_MAX),
    metavar="BYTES",
    help="For --execute: bytes per second of moved data that each broker sends and receives.",
)
@click.option(
    "--preserve-throttles",
    is_flag=True,
    help="For --verify and --cancel: keep the throttles of the topics and brokers.",
)
@cluster_options
def reassign(
    file: TextIO | None,
    broker_list: str | None,
    out: str | None,
    disable_rack_aware: bool,
    additional: bool,
    throttle: int | None,
    preserve_throttles: bool,
    **options: Any,
) -> None:
    """Move partitions to other brokers, as FILE says (in kafka-reassign-partitions' format; - is
    stdin)."""
    actions = [name for name in _ACTIONS if options.pop(f"is_{name}")]
    if len(actions) != 1:
        raise click.UsageError("give one of --generate, --execute, --verify, --cancel, --list")
    action = actions[0]
    if (file is None) != (action == "list"):
        raise click.UsageError(f"--{action} {'takes no' if action == 'list' else 'needs a'} FILE")
    if (broker_list is None) == (action == "generate"):
        raise click.UsageError("--generate needs --broker-list, and nothing else takes it")
    if out is not None and action != "generate":
        raise click.UsageError("--out is for --generate")
    if throttle is not None and action != "execute":
        raise click.UsageError("--throttle is for --execute")
    if preserve_throttles and action not in ("verify", "cancel"):
        raise click.UsageError("--preserve-throttles is for --verify and --cancel")
    chosen = [] if broker_list is None else _broker_ids(broker_list)
    text = _text_of(file) if file is not None else ""
    backend, asked = _open(options)
    output = options["output"]
    with _naming(file):
        match action:
            case "list":
                show(output, asked.reassignments(), _ONGOING)
            case "generate":
                with_racks = not disable_rack_aware
                _generate(output, backend, asked, text, chosen, with_racks=with_racks, out=out)
            case "execute":
                _execute(options, backend, asked, text, additional, throttle)
            case "verify":
                failed = _verify(options, backend, asked, text)
                # Also for moves that failed, since no other command removes their throttles.
                if not preserve_throttles and not asked.reassignments():
                    _clear_throttles(options, backend, text, moving=set())
                if failed:
                    raise CommandFailed(f"not moving, and not where FILE says: {', '.join(failed)}")
            case _:
                _cancel(options, backend, asked, text)
                if not preserve_throttles:
                    moving = {row["topic"] for row in asked.reassignments()}
                    _clear_throttles(options, backend, text, moving=moving)


@contextlib.contextmanager
def _naming(file: TextIO | None) -> Iterator[None]:
    """Name the file in the failure for one that will not do."""
    from kvorum.cli.reassignment_file import BadFile

    try:
        yield
    except BadFile as error:
        name = "stdin" if file is None or file.name == "<stdin>" else file.name
        raise CommandFailed(f"{name}: {error}") from error


def _text_of(file: TextIO) -> str:
    try:
        return file.read()
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{file.name} is no text in UTF-8: {error.reason}") from error


def _generate(
    output: str,
    backend: Backend,
    asked: PartitionBackend,
    text: str,
    chosen: list[int],
    *,
    with_racks: bool,
    out: str | None,
) -> None:
    import random

    from kvorum.cli.reassignment_file import (
        generate,
        read_topics,
        usable_brokers,
        write_assignment,
    )

    current = _current(backend, asked, read_topics(text))
    known = {row["broker_id"]: row for row in backend.brokers()}
    usable = usable_brokers(chosen, known, with_racks=with_racks)
    proposed = generate(current, usable, random.Random())
    if out is not None:
        with open(out, "w", encoding="utf-8") as file:
            file.write(f"{write_assignment(proposed)}\n")
    if is_structured(output):
        rows = {"current": current, "proposed": proposed}
        show(output, {name: json.loads(write_assignment(a)) for name, a in rows.items()})
        return
    click.echo(f"Current partition replica assignment\n{write_assignment(current)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{write_assignment(proposed)}")


def _execute(
    options: dict[str, Any],
    backend: Backend,
    asked: PartitionBackend,
    text: str,
    is_additional: bool,
    throttle: int | None,
) -> None:
    from kvorum.cli.move_throttle import set_throttles
    from kvorum.cli.reassignment_file import read_assignment, write_assignment

    output = options["output"]
    wanted = read_assignment(text)
    directories = _directories(options, backend, text)
    ongoing = asked.reassignments()
    if ongoing and not is_additional:
        raise CommandFailed(
            f"{len(ongoing)} reassignments are under way; wait for them, cancel them, "
            "or give --additional"
        )
    registered = {row["broker_id"] for row in backend.brokers()}
    unknown = sorted({replica for target in wanted.values() for replica in target} - registered)
    if unknown:
        raise CommandFailed(f"brokers {unknown} of FILE are not registered; nothing was begun")
    current = _current(backend, asked, list(dict.fromkeys(topic for topic, _ in wanted)))
    present = directories.announce(current)
    before = write_assignment({key: current[key] for key in wanted if key in current}, present)
    if throttle is not None:
        # Set before the move, which would otherwise run unthrottled for its first second.
        set_throttles(_configs(options), current, wanted, throttle)
        note = f"throttled to {throttle} bytes a second; --verify takes that away in the end"
        click.echo(note, err=True)
    rows = asked.reassign([(topic, i, replicas) for (topic, i), replicas in wanted.items()])
    begun = [(row["topic"], row["partition"]) for row in rows if row["error"] == "NONE"]
    moves = directories.begin(begun)
    if is_structured(output):
        show(output, {"before": json.loads(before), "partitions": rows, "log_dirs": moves})
    else:
        click.echo(f"Current partition replica assignment\n{before}\n")
        click.echo("Save this to use as the FILE of a move back.\n")
        show_outcomes(output, [*rows, *moves], _OUTCOME, done="begun")
    _fail_on_errors([*rows, *moves], "not begun")


def _directories(options: dict[str, Any], backend: Backend, text: str) -> ReassignedDirectories:
    """The data directories that FILE names."""
    from kvorum.cli.broker_directories import directories_of
    from kvorum.cli.reassigned_directories import ReassignedDirectories
    from kvorum.cli.reassignment_file import read_log_dirs

    log_dirs = read_log_dirs(text)
    if log_dirs and options["bootstrap_controller"]:
        topic, partition, _ = min(log_dirs)
        raise CommandFailed(
            f"log_dirs of {topic}-{partition}: only brokers know their data directories; give "
            "-b BROKER in place of --bootstrap-controller"
        )
    return ReassignedDirectories(log_dirs, lambda i: directories_of(backend, i, options))


def _configs(options: dict[str, Any]) -> ConfigBackend:
    from kvorum.cli.config_backends import open_config_backend

    return open_config_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )


def _clear_throttles(
    options: dict[str, Any], backend: Backend, text: str, *, moving: set[str]
) -> None:
    """Remove the throttles of FILE's topics and of all brokers, as kafka-reassign-partitions does,
    except those that moves still under way need: the brokers' rates, and the lists of the topics
    `moving`."""
    from kvorum.cli.move_throttle import clear_throttles
    from kvorum.cli.reassignment_file import read_assignment

    named = {topic for topic, _ in read_assignment(text)} - moving
    topics = sorted({topic for topic, _ in _replicas_there(backend, sorted(named))})
    brokers = [] if moving else [row["broker_id"] for row in backend.brokers()]
    if clear_throttles(_configs(options), topics, brokers):
        click.echo("throttles cleared", err=True)


def _replicas_there(backend: Backend, topics: list[str]) -> Assignment:
    """As `_replicas`, for those topics that exist: one may have been deleted since FILE was
    executed. If one is missing, all topics are requested."""
    try:
        return _replicas(backend, topics) if topics else {}
    except CommandFailed:
        there = {row["topic"] for row in backend.topics(None)}
        found = [topic for topic in topics if topic in there]
        if len(found) == len(topics):
            raise
        return _replicas(backend, found) if found else {}


def _verify(
    options: dict[str, Any], backend: Backend, asked: PartitionBackend, text: str
) -> list[str]:
    """Show the progress of each partition, and of each replica whose directory FILE names. Returns
    those whose move failed."""
    from kvorum.cli.reassigned_directories import name_of
    from kvorum.cli.reassignment_file import read_assignment

    wanted = read_assignment(text)
    directories = _directories(options, backend, text)
    ongoing = {(row["topic"], row["partition"]) for row in asked.reassignments()}
    # Read after the list of reassignments, so that a move that has left the list shows its final
    # replicas.
    found = _replicas_there(backend, list(dict.fromkeys(topic for topic, _ in wanted)))
    rows = []
    for (topic, partition), target in sorted(wanted.items()):
        replicas = found.get((topic, partition))
        state = "failed"
        if replicas == target and (topic, partition) not in ongoing:
            state = "complete"
        elif (topic, partition) in ongoing:
            state = "in progress"
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "state": state,
                "replicas": None if replicas is None else list(replicas),
                "target": list(target),
            }
        )
    columns = _VERIFIED
    if replicas_found := directories.verify(ongoing):
        columns = [*_VERIFIED, *_VERIFIED_DIRECTORIES]
        rows = [dict.fromkeys(columns) | row for row in [*rows, *replicas_found]]
    show(options["output"], rows, columns)
    return [name_of(row) for row in rows if row["state"] == "failed"]


def _cancel(options: dict[str, Any], backend: Backend, asked: PartitionBackend, text: str) -> None:
    from kvorum.cli.reassignment_file import read_assignment

    directories = _directories(options, backend, text)
    ongoing = {(row["topic"], row["partition"]) for row in asked.reassignments()}
    wanted = [key for key in read_assignment(text) if key in ongoing]
    rows = asked.reassign([(topic, partition, None) for topic, partition in wanted])
    rows += directories.cancel()
    show_outcomes(options["output"], rows, _OUTCOME, done="cancelled")
    if not rows:
        warn("nothing is cancelled: none of the file's partitions is being moved")
    _fail_on_errors(rows, "not cancelled", besides=("NO_REASSIGNMENT_IN_PROGRESS",))


def _open(options: dict[str, Any]) -> tuple[Backend, PartitionBackend]:
    from kvorum.cli.backends import open_backend
    from kvorum.cli.partition_backends import partitions_of

    backend = open_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    return backend, partitions_of(backend)


def _replicas(backend: Backend, topics: list[str]) -> Assignment:
    return {
        (topic["topic"], partition["partition"]): tuple(partition["replicas"])
        for topic in backend.topics(topics)
        for partition in topic["partitions"]
    }


def _current(backend: Backend, asked: PartitionBackend, topics: list[str]) -> Assignment:
    """The present replicas of the partitions; for those being moved, the replicas before the
    move."""
    from kvorum.cli.partition_backends import reassigning

    adding = reassigning(asked)
    return {
        key: tuple(r for r in replicas if r not in adding.get(key, ()))
        for key, replicas in _replicas(backend, topics).items()
    }


def _targets(backend: Backend, texts: Sequence[str]) -> list[tuple[str, int]]:
    chosen: list[tuple[str, int]] = []
    for text in texts:
        topic, separator, number = text.rpartition(":")
        if not separator:
            chosen += sorted(_replicas(backend, [text]))
        elif topic and number.isdigit() and int(number) <= INT32_MAX:
            chosen.append((topic, int(number)))
        else:
            raise click.UsageError(f"{text!r} is neither TOPIC nor TOPIC:PARTITION")
    return list(dict.fromkeys(chosen))


def _assignments(text: str | None) -> tuple[tuple[int, ...], ...] | None:
    if text is None:
        return None
    try:
        return tuple(tuple(int(i) for i in part.split(":")) for part in text.split(","))
    except ValueError:
        raise click.UsageError(f"--assignment {text!r} is not ID:ID,ID:ID") from None


def _broker_ids(text: str) -> list[int]:
    try:
        chosen = [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--broker-list {text!r} is not ID,ID") from None
    if len(set(chosen)) < len(chosen):
        raise click.UsageError(f"--broker-list {text!r} names a broker twice")
    return chosen


def _fail_on_errors(rows: list[Row], what: str, besides: tuple[str, ...] = ()) -> None:
    from kvorum.cli.reassigned_directories import name_of

    counted = [row for row in rows if row["error"] not in besides]
    fail_on_errors(counted, what, name_of)
